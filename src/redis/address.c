/* The URI of a Redis. Its one invariant: the text that error messages show
 * holds neither user nor password. */
#include "redis/address.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/latch.h"
#include "base/random.h"

#define DEFAULT_PORT "6379"
#define PORT_MAX 65535UL
#define DB_MAX                                                                 \
    1000000UL /* no server has more; a longer number is a mistake              \
               */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* Copy [begin, end) with its percent-encoding undone. An encoded NUL is
 * refused, because what comes out is a terminated text. */
static enum shed_code decode(const char *begin, const char *end,
                             const char *what, char **out,
                             struct shed_error *err)
{
    char *text = malloc((size_t)(end - begin) + 1);
    char *to = text;

    if (text == NULL)
        return shed_fail_nomem(err, "a Redis URI");
    for (const char *c = begin; c < end; c++) {
        if (*c != '%') {
            *to++ = *c;
            continue;
        }
        int high = end - c > 2 ? hex_digit(c[1]) : -1;
        int low = high >= 0 ? hex_digit(c[2]) : -1;
        if (low < 0 || (high == 0 && low == 0)) {
            free(text);
            return shed_fail(err, SHED_EINVAL,
                             "Redis URI: the %s has a bad %% escape", what);
        }
        *to++ = (char)(high * 16 + low);
        c += 2;
    }
    *to = '\0';
    *out = text;
    return SHED_OK;
}

static enum shed_code parse_number(const char *begin, const char *end,
                                   const char *what, unsigned long min,
                                   unsigned long max, struct shed_error *err)
{
    unsigned long n = 0;

    for (const char *c = begin; c < end; c++) {
        if (*c < '0' || *c > '9' || n > max)
            goto fail;
        n = n * 10 + (unsigned long)(*c - '0');
    }
    if (begin == end || n < min || n > max)
        goto fail;
    return SHED_OK;
fail:
    return shed_fail(err, SHED_EINVAL,
                     "Redis URI: the %s must be a number from %lu to %lu", what,
                     min, max);
}

static enum shed_code parse_db(struct shed_address *a, const char *text,
                               struct shed_error *err)
{
    size_t size = strlen(text);
    enum shed_code code =
        parse_number(text, text + size, "database", 0, DB_MAX, err);

    if (code == SHED_OK && size < sizeof(a->db))
        memcpy(a->db, text, size + 1);
    return code;
}

/* [user][:password]@ */
static enum shed_code parse_user(struct shed_address *a, const char *begin,
                                 const char *end, struct shed_error *err)
{
    const char *colon = memchr(begin, ':', (size_t)(end - begin));
    const char *user_end = colon != NULL ? colon : end;
    enum shed_code code = SHED_OK;

    if (user_end > begin)
        code = decode(begin, user_end, "user", &a->user, err);
    if (code == SHED_OK && colon != NULL)
        code = decode(colon + 1, end, "password", &a->password, err);
    if (code == SHED_OK && a->password == NULL)
        code = shed_fail(err, SHED_EINVAL,
                         "Redis URI: a user needs a password: "
                         "user:password@ or :password@");
    return code;
}

/* host[:port][/db]; an IPv6 address stands in brackets */
static enum shed_code parse_host(struct shed_address *a, const char *c,
                                 struct shed_error *err)
{
    const char *end = c + strcspn(c, "/");
    const char *host_end = end;
    const char *port = NULL;
    enum shed_code code;

    if (*c == '[') {
        host_end = memchr(c, ']', (size_t)(end - c));
        if (host_end == NULL)
            return shed_fail(err, SHED_EINVAL, "Redis URI: '[' without ']'");
        if (host_end + 1 < end && host_end[1] != ':')
            return shed_fail(err, SHED_EINVAL,
                             "Redis URI: only ':' and a port may follow ']'");
        if (host_end + 1 < end)
            port = host_end + 2;
        c++;
    } else if (memchr(c, ':', (size_t)(end - c)) != NULL) {
        host_end = memchr(c, ':', (size_t)(end - c));
        port = host_end + 1;
    }
    if (host_end == c)
        return shed_fail(err, SHED_EINVAL, "Redis URI: the host is missing");
    if (memchr(c, '?', (size_t)(host_end - c)) != NULL)
        return shed_fail(err, SHED_EINVAL,
                         "Redis URI: no '?' in redis://; the database is /n");
    code = decode(c, host_end, "host", &a->host, err);
    if (code == SHED_OK && port != NULL)
        code = parse_number(port, end, "port", 1, PORT_MAX, err);
    if (code != SHED_OK)
        return code;
    a->port = port != NULL ? strndup(port, (size_t)(end - port))
                           : strdup(DEFAULT_PORT);
    if (a->port == NULL)
        return shed_fail_nomem(err, "a Redis URI");
    if (*end == '/' && end[1] != '\0')
        return parse_db(a, end + 1, err);
    return SHED_OK;
}

/* /path[?db=n] */
static enum shed_code parse_path(struct shed_address *a, const char *c,
                                 struct shed_error *err)
{
    const char *end = c + strcspn(c, "?");
    struct sockaddr_un *un = (struct sockaddr_un *)(void *)&a->name;
    char *path = NULL;
    enum shed_code code;

    if (*c != '/')
        return shed_fail(err, SHED_EINVAL,
                         "Redis URI: unix: needs an absolute path");
    code = decode(c, end, "path", &path, err);
    if (code != SHED_OK)
        return code;
    if (strlen(path) >= sizeof(un->sun_path)) {
        code = shed_fail(err, SHED_EINVAL,
                         "Redis URI: the path is longer than a unix socket's "
                         "may be, %zu bytes",
                         sizeof(un->sun_path) - 1);
        goto done;
    }
    un->sun_family = AF_UNIX;
    memcpy(un->sun_path, path, strlen(path) + 1);
    a->name_size = sizeof(*un);
    if (*end == '?' && strncmp(end, "?db=", 4) == 0)
        code = parse_db(a, end + 4, err);
    else if (*end == '?')
        code = shed_fail(err, SHED_EINVAL,
                         "Redis URI: only ?db=n may follow the path");
done:
    free(path);
    return code;
}

/* A name that does not resolve is like a server that is down: later it may. */
static void resolve(struct shed_address *a)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    int failure = getaddrinfo(a->host, a->port, &hints, &list);

    if (failure != 0) {
        shed_address_set(a, 0, NULL, 0, gai_strerror(failure));
        return;
    }
    shed_address_set(a, 0, list->ai_addr, list->ai_addrlen, NULL);
    freeaddrinfo(list);
}

static enum shed_code make_text(struct shed_address *a, struct shed_error *err)
{
    const char *path =
        ((const struct sockaddr_un *)(const void *)&a->name)->sun_path;
    size_t size = a->host != NULL ? strlen(a->host) + strlen(a->port) + 2
                                  : strlen(path) + 1;

    a->text = malloc(size);
    if (a->text == NULL)
        return shed_fail_nomem(err, "a Redis URI");
    if (a->host != NULL)
        (void)snprintf(a->text, size, "%s:%s", a->host, a->port);
    else
        memcpy(a->text, path, size);
    return SHED_OK;
}

/* The end of user and password, NULL without. In a unix path an '@' is one. */
static const char *last_at(const char *c, int is_unix)
{
    const char *end = is_unix ? c + strcspn(c, "/") : c + strlen(c);

    while (end > c && end[-1] != '@')
        end--;
    return end > c ? end - 1 : NULL;
}

static enum shed_code parse(struct shed_address *a, const char *uri,
                            struct shed_error *err)
{
    int is_unix = strncmp(uri, "unix:", 5) == 0;
    const char *c = uri + (is_unix ? 5 : 8);
    const char *at;
    enum shed_code code = SHED_OK;

    if (strncmp(uri, "rediss://", 9) == 0)
        return shed_fail(err, SHED_EINVAL,
                         "Redis URI: TLS is not supported: put a tunnel "
                         "between");
    if (!is_unix && strncmp(uri, "redis://", 8) != 0)
        return shed_fail(err, SHED_EINVAL,
                         "Redis URI: must begin with redis:// or unix:");
    if (is_unix && strncmp(c, "//", 2) == 0)
        c += 2;
    /* the last one: a password with an '@' that was not encoded must not end up
       in the host, which error texts show */
    at = last_at(c, is_unix);
    if (at != NULL) {
        code = parse_user(a, c, at, err);
        c = at + 1;
    }
    if (code == SHED_OK)
        code = is_unix ? parse_path(a, c, err) : parse_host(a, c, err);
    if (code == SHED_OK)
        code = make_text(a, err);
    return code;
}

enum shed_code shed_address_create(const char *uri, struct shed_address **out,
                                   struct shed_error *err)
{
    struct shed_address *a;
    enum shed_code code;

    *out = NULL;
    if (uri == NULL)
        return shed_fail(err, SHED_EINVAL, "Redis URI: is NULL");
    a = calloc(1, sizeof(*a));
    if (a == NULL)
        return shed_fail_nomem(err, "a Redis URI");
    if (pthread_mutex_init(&a->mu, NULL) != 0) {
        free(a);
        return shed_fail_nomem(err, "a Redis URI");
    }
    if (shed_cond_init(&a->looked_up) != 0) {
        pthread_mutex_destroy(&a->mu);
        free(a);
        return shed_fail_nomem(err, "a Redis URI");
    }
    code = parse(a, uri, err);
    if (code != SHED_OK) {
        shed_address_destroy(a);
        return code;
    }
    if (a->host != NULL)
        resolve(a);
    *out = a;
    return SHED_OK;
}

void shed_address_destroy(struct shed_address *a)
{
    if (a == NULL)
        return;
    free(a->text);
    free(a->user);
    free(a->password);
    free(a->host);
    free(a->port);
    pthread_cond_destroy(&a->looked_up);
    pthread_mutex_destroy(&a->mu);
    free(a);
}

/* ------------------------------------------------------------- the lookup */

enum shed_code shed_address_get(struct shed_address *a,
                                struct sockaddr_storage *out, socklen_t *size,
                                struct shed_error *err)
{
    enum shed_code code = SHED_OK;

    pthread_mutex_lock(&a->mu);
    *out = a->name;
    *size = a->name_size;
    if (a->name_size == 0)
        code = shed_fail(err, SHED_EREDIS, "%s", a->why.reason);
    pthread_mutex_unlock(&a->mu);
    return code;
}

bool shed_address_is_known(struct shed_address *a)
{
    bool is_known;

    pthread_mutex_lock(&a->mu);
    is_known = a->name_size > 0;
    pthread_mutex_unlock(&a->mu);
    return is_known;
}

void shed_address_set(struct shed_address *a, unsigned term,
                      const struct sockaddr *name, socklen_t size,
                      const char *failure)
{
    pthread_mutex_lock(&a->mu);
    if (name != NULL && size <= sizeof(a->name)) {
        memcpy(&a->name, name, size);
        a->name_size = size;
    }
    if (name == NULL)
        (void)shed_fail(&a->why, SHED_EREDIS, "Redis host %s: %s", a->host,
                        failure);
    a->looked_up_term = term;
    pthread_cond_broadcast(&a->looked_up);
    pthread_mutex_unlock(&a->mu);
}

unsigned shed_address_term(const struct shed_address *a)
{
    return atomic_load(&a->term);
}

void shed_address_await(struct shed_address *a, uint64_t deadline_ms)
{
    uint64_t left_ms = shed_left_ms(deadline_ms, shed_now_ms());

    if (a->host == NULL)
        return; /* a path is looked up by connect */
    pthread_mutex_lock(&a->mu);
    while (a->looked_up_term != shed_address_term(a) && left_ms > 0) {
        shed_cond_wait(&a->looked_up, &a->mu, left_ms);
        left_ms = shed_left_ms(deadline_ms, shed_now_ms());
    }
    pthread_mutex_unlock(&a->mu);
}

/* ------------------------------------------------------------ its servers */

/* Left again soon after the last pause was over, it is left alone for longer.
 */
static void set_pause_locked(struct shed_address *a, uint64_t min_ms,
                             uint64_t max_ms)
{
    uint64_t now_ms = shed_now_ms();

    if (shed_left_ms(now_ms, a->left_ms) > 2 * max_ms)
        a->left_count = 0;
    a->pause_end_ms = now_ms;
    if (a->left_count > 0)
        a->pause_end_ms += shed_backoff_equal_ms(a->left_count - 1, min_ms,
                                                 max_ms, shed_random_jitter());
    a->left_count++;
    a->left_ms = now_ms;
}

void shed_address_leave(struct shed_address *a, unsigned term, uint64_t min_ms,
                        uint64_t max_ms)
{
    bool is_left = false;

    pthread_mutex_lock(&a->mu);
    if (term == shed_address_term(a)) {
        set_pause_locked(a, min_ms, max_ms);
        atomic_store(&a->term, term + 1);
        is_left = true;
    }
    pthread_mutex_unlock(&a->mu);
    if (is_left && a->on_leave != NULL)
        a->on_leave(a->on_leave_arg);
}

uint64_t shed_address_pause_ms(struct shed_address *a)
{
    uint64_t left_ms;

    pthread_mutex_lock(&a->mu);
    left_ms = shed_left_ms(a->pause_end_ms, shed_now_ms());
    pthread_mutex_unlock(&a->mu);
    return left_ms;
}
