/* The parts of a Redis URI, and the socket address that its host name resolves
 * to. Its one invariant: the text that reasons show contains neither user nor
 * password. */
#include "wire/address.h"

#include <assert.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/latch.h"
#include "wire/tls.h"

enum {
    DEFAULT_PORT = 6379,
    SENTINEL_PORT = 26379,
    DB_MAX = 1000000 /* no server has more, so a longer number is a mistake */
};

/* As it begins reasons. */
#define NAME "Redis URI"

/* Of parameters. */
enum { DB, SENTINEL_USER, SENTINEL_PASSWORD };

/* An empty user means no user. A user needs a password. */
static enum shed_code take_user(struct shed_address *a, struct shed_error *err)
{
    const struct shed_uri *uri = &a->uri;

    if (uri->user.text != NULL && uri->password.text == NULL)
        return shed_fail(err, SHED_EINVAL,
                         "Redis URI: a user needs a password: "
                         "user:password@ or :password@");
    a->user = uri->user.size > 0 ? uri->user.text : NULL;
    a->password = uri->password.text;
    return SHED_OK;
}

static enum shed_code take_db(struct shed_address *a, struct shed_uri_part part,
                              struct shed_error *err)
{
    unsigned db;

    if (part.text == NULL)
        return SHED_OK;
    if (!shed_uri_number(part, 0, DB_MAX, &db))
        return shed_fail(err, SHED_EINVAL,
                         "Redis URI: the database must be a number from 0 to "
                         "%d",
                         DB_MAX);
    if (db > 0)
        (void)snprintf(a->db, sizeof(a->db), "%u", db);
    return SHED_OK;
}

/* Take the list of hosts, of which there may be limit. */
static enum shed_code take_places(struct shed_address *a, const char *what,
                                  unsigned usual_port, size_t limit,
                                  struct shed_error *err)
{
    char *rest = a->uri.hosts.text;
    enum shed_code code = SHED_OK;
    struct shed_uri_part host;

    a->places = calloc(limit, sizeof(*a->places));
    if (a->places == NULL)
        return shed_fail_nomem(err, "a Redis URI");
    for (; code == SHED_OK && rest != NULL; a->count++) {
        unsigned port = usual_port;
        code = shed_uri_next_host(NAME, &rest, &host, &port, err);
        if (code == SHED_OK && host.size >= SHED_HOST_BYTES)
            code = shed_fail(err, SHED_EINVAL,
                             "Redis URI: a host has more than %d bytes",
                             SHED_HOST_BYTES - 1);
        if (code != SHED_OK || a->count >= limit)
            continue;
        memcpy(a->places[a->count].host, host.text, host.size + 1);
        (void)snprintf(a->places[a->count].port, SHED_PORT_BYTES, "%u", port);
    }
    if (code == SHED_OK && a->count > limit)
        code =
            shed_fail(err, SHED_EINVAL, "Redis URI: it has %zu %s, at most %zu",
                      a->count, what, limit);
    return code;
}

static enum shed_code take_host(struct shed_address *a, struct shed_error *err)
{
    enum shed_code code = take_places(a, "hosts", DEFAULT_PORT, 1, err);

    if (code != SHED_OK)
        return code;
    a->host = a->places->host;
    a->port = a->places->port;
    return a->uri.path.size > 0 ? take_db(a, a->uri.path, err) : SHED_OK;
}

static enum shed_code take_path(struct shed_address *a, struct shed_error *err)
{
    struct sockaddr_un *un = (struct sockaddr_un *)(void *)&a->name;
    struct shed_uri_part path = a->uri.path;

    if (path.text[0] != '/')
        return shed_fail(err, SHED_EINVAL,
                         "Redis URI: unix: needs an absolute path");
    if (path.size >= sizeof(un->sun_path))
        return shed_fail(err, SHED_EINVAL,
                         "Redis URI: the path is longer than a unix socket's "
                         "may be, %zu bytes",
                         sizeof(un->sun_path) - 1);
    un->sun_family = AF_UNIX;
    memcpy(un->sun_path, path.text, path.size + 1);
    a->name_size = sizeof(*un);
    return take_db(a, a->uri.parameters[DB], err);
}

static enum shed_code take_sentinels(struct shed_address *a,
                                     struct shed_error *err)
{
    const struct shed_uri *uri = &a->uri;
    enum shed_code code =
        take_places(a, "sentinels", SENTINEL_PORT, SHED_SENTINELS_MAX, err);

    if (code == SHED_OK && uri->path.size == 0)
        code = shed_fail(err, SHED_EINVAL,
                         "Redis URI: the name of the primary is missing: "
                         "redis+sentinel://host,host,host/name");
    if (code != SHED_OK)
        return code;
    a->sentinels = a->places;
    a->host = uri->path.text;
    a->port = ""; /* the sentinels say it */
    if (uri->parameters[SENTINEL_USER].text != NULL &&
        uri->parameters[SENTINEL_PASSWORD].text == NULL)
        return shed_fail(err, SHED_EINVAL,
                         "Redis URI: sentinel_user needs a sentinel_password");
    a->sentinel_user = uri->parameters[SENTINEL_USER].text;
    a->sentinel_password = uri->parameters[SENTINEL_PASSWORD].text;
    return take_db(a, a->uri.parameters[DB], err);
}

/* The databases of a cluster are one. */
static enum shed_code take_seeds(struct shed_address *a, struct shed_error *err)
{
    enum shed_code code;

    if (a->uri.path.size > 0)
        return shed_fail(err, SHED_EINVAL,
                         "Redis URI: a cluster has no databases: write it "
                         "without what follows '/'");
    (void)snprintf(a->text, sizeof(a->text), "%s", a->uri.hosts.text);
    code = take_places(a, "nodes", DEFAULT_PORT, SHED_SEEDS_MAX, err);
    a->seeds = a->places;
    return code;
}

static const struct shed_uri_form host_form = {
    .name = NAME,
    .user_stops = "", /* any delimiter may be in a password */
    .has_host = true,
    .path = "database",
    .parameter_rule = "no '?' may follow: write the database as /n"};

static const struct shed_uri_form path_form = {
    .name = NAME,
    .user_stops = "/", /* an '@' behind it belongs to the path */
    .path = "path",
    .parameters = {"db"},
    .parameter_rule = "only ?db=n may follow the path"};

static const struct shed_uri_form sentinel_form = {
    .name = NAME,
    .user_stops = "/?", /* a parameter can have an '@' */
    .has_host = true,
    .path = "name of the primary",
    .parameters = {"db", "sentinel_user", "sentinel_password"},
    .parameter_rule = "only db=n, sentinel_user=name and "
                      "sentinel_password=password may follow '?'"};

/* The first scheme that matches is used. */
static const struct scheme {
    const char *text;
    const struct shed_uri_form *form;
    bool is_tls;
    enum shed_code (*take)(struct shed_address *a, struct shed_error *err);
} schemes[] = {
    {"redis+sentinel://", &sentinel_form, false, take_sentinels},
    {"rediss+sentinel://", &sentinel_form, true, take_sentinels},
    {"redis+cluster://", &host_form, false, take_seeds},
    {"rediss+cluster://", &host_form, true, take_seeds},
    {"redis://", &host_form, false, take_host},
    {"rediss://", &host_form, true, take_host},
    {"valkey://", &host_form, false, take_host},
    {"valkeys://", &host_form, true, take_host},
    {"unix://", &path_form, false, take_path},
    {"unix:", &path_form, false, take_path},
};

/* Returns: as getaddrinfo; *out is NULL after a failure. */
static int find_host(const char *host, const char *port, int flags,
                     struct addrinfo **out)
{
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = flags};

    *out = NULL;
    return getaddrinfo(host, port, &hints, out);
}

struct addrinfo *shed_address_find(struct shed_address *a,
                                   const struct shed_place *primary,
                                   struct shed_error *err)
{
    struct addrinfo *list;
    int failure = primary != NULL
                      ? find_host(primary->host, primary->port, 0, &list)
                      : find_host(a->host, a->port, 0, &list);

    if (failure != 0) {
        (void)shed_fail(err, SHED_EREDIS, "%s", gai_strerror(failure));
    } else if (primary != NULL) {
        shed_mutex_lock(&a->mu);
        memcpy(a->primary, primary->host, sizeof(a->primary));
        shed_mutex_unlock(&a->mu);
    }
    return list;
}

/* A host name that does not resolve is treated like a server that is down: it
 * may resolve later. */
void shed_address_resolve(struct shed_address *a)
{
    struct shed_error why = {SHED_OK, ""};
    struct addrinfo *list = shed_address_find(a, NULL, &why);

    shed_address_set(a, 0, list, why.reason);
    if (list != NULL)
        freeaddrinfo(list);
}

static void make_text(struct shed_address *a)
{
    const char *path =
        ((const struct sockaddr_un *)(const void *)&a->name)->sun_path;
    const char *first = a->host != NULL ? a->host : path;
    bool has_port = a->host != NULL && a->sentinels == NULL;

    if (a->seeds == NULL) /* of a cluster it is there already */
        (void)snprintf(a->text, sizeof(a->text), has_port ? "%s:%s" : "%s",
                       first, a->port);
}

static enum shed_code parse(struct shed_address *a, const char *text,
                            struct shed_error *err)
{
    const struct scheme *scheme = schemes;
    const struct scheme *end = schemes + sizeof(schemes) / sizeof(*schemes);
    enum shed_code code;

    while (scheme != end && !shed_uri_has_scheme(text, scheme->text))
        scheme++;
    if (scheme == end)
        return shed_fail(err, SHED_EINVAL,
                         NAME ": it must begin with redis://, rediss://, "
                              "unix:, redis+sentinel:// or redis+cluster://");
    a->is_tls = scheme->is_tls;
    code =
        shed_uri_parse(scheme->form, text + strlen(scheme->text), &a->uri, err);
    if (code == SHED_OK)
        code = take_user(a, err);
    if (code == SHED_OK)
        code = scheme->take(a, err);
    if (code == SHED_OK)
        make_text(a);
    return code;
}

/* Returns: NULL when out of memory. */
static struct shed_address *alloc(void)
{
    struct shed_address *a = calloc(1, sizeof(*a));

    if (a == NULL || shed_mutex_init(&a->mu, SHED_RANK_ADDRESS) != 0) {
        free(a);
        return NULL;
    }
    if (shed_cond_init(&a->looked_up) != 0) {
        shed_mutex_destroy(&a->mu);
        free(a);
        return NULL;
    }
    atomic_init(&a->refs, 1);
    a->looked_up_term = 0U - 1; /* nobody has looked it up yet */
    return a;
}

enum shed_code shed_address_create(const char *uri, struct shed_address **out,
                                   struct shed_error *err)
{
    struct shed_address *a;
    enum shed_code code;

    *out = NULL;
    if (uri == NULL)
        return shed_fail(err, SHED_EINVAL, "Redis URI is NULL");
    a = alloc();
    if (a == NULL)
        return shed_fail_nomem(err, "a Redis URI");
    code = parse(a, uri, err);
    if (code != SHED_OK) {
        shed_address_unref(a);
        return code;
    }
    if (a->host != NULL && a->sentinels == NULL)
        shed_address_resolve(a);
    *out = a;
    return SHED_OK;
}

enum shed_code shed_address_use_tls(struct shed_address *a,
                                    const struct shed_client_options *o,
                                    struct shed_error *err)
{
    if ((o->tls_cert == NULL) != (o->tls_key == NULL))
        return shed_fail(err, SHED_EINVAL,
                         "client tls_cert and tls_key: set both or neither");
    if (!a->is_tls && (o->tls_ca != NULL || o->tls_cert != NULL))
        return shed_fail(err, SHED_EINVAL,
                         "client tls_ca, tls_cert and tls_key are for "
                         "rediss://, and the URI begins with another scheme");
    return a->is_tls ? shed_tls_server_create(a->text, o, &a->tls, err)
                     : SHED_OK;
}

enum shed_code shed_address_create_at(const struct shed_address *base,
                                      const struct shed_place *at,
                                      struct shed_address **out,
                                      struct shed_error *err)
{
    struct shed_address *a = alloc();
    struct addrinfo *list;
    enum shed_code code = SHED_OK;

    *out = NULL;
    if (a != NULL)
        a->places = malloc(sizeof(*a->places));
    if (a == NULL || a->places == NULL) {
        shed_address_unref(a);
        return shed_fail_nomem(err, "the address of a server");
    }
    *a->places = *at;
    a->host = a->places->host;
    a->port = a->places->port;
    a->is_guide = base->sentinels != NULL;
    a->is_node = !a->is_guide;
    a->user = a->is_node ? base->user : base->sentinel_user;
    a->password = a->is_node ? base->password : base->sentinel_password;
    a->is_tls = base->is_tls;
    /* a name is left for a lookup */
    if (find_host(a->host, a->port, AI_NUMERICHOST, &list) == 0) {
        shed_address_set(a, 0, list, NULL);
        freeaddrinfo(list);
    }
    make_text(a);
    if (a->is_tls) {
        a->tls = shed_tls_server_like(base->tls, a->text);
        if (a->tls == NULL)
            code = shed_fail_nomem(err, "the address of a server");
    }
    if (code == SHED_OK)
        *out = a;
    else
        shed_address_unref(a);
    return code;
}

struct shed_address *shed_address_ref(struct shed_address *a)
{
    atomic_fetch_add(&a->refs, 1);
    return a;
}

void shed_address_unref(struct shed_address *a)
{
    if (a == NULL || atomic_fetch_sub(&a->refs, 1) > 1)
        return;
    shed_tls_server_destroy(a->tls);
    free(a->places);
    shed_uri_fini(&a->uri);
    pthread_cond_destroy(&a->looked_up);
    shed_mutex_destroy(&a->mu);
    free(a);
}

/* ------------------------------------------------------------- the lookup */

enum shed_code shed_address_get(struct shed_address *a,
                                struct sockaddr_storage *out, socklen_t *size,
                                char host[SHED_HOST_BYTES],
                                struct shed_error *err)
{
    const char *name = a->sentinels != NULL ? a->primary : a->host;
    enum shed_code code = SHED_OK;

    shed_mutex_lock(&a->mu);
    *out = a->name;
    *size = a->name_size;
    (void)snprintf(host, SHED_HOST_BYTES, "%s", name != NULL ? name : "");
    if (a->name_size == 0)
        code = shed_fail(err, SHED_EREDIS, "%s", a->why.reason);
    shed_mutex_unlock(&a->mu);
    return code;
}

bool shed_address_is_known(struct shed_address *a)
{
    bool is_known;

    shed_mutex_lock(&a->mu);
    is_known = a->name_size > 0;
    shed_mutex_unlock(&a->mu);
    return is_known;
}

/* Terms wrap around. */
static bool is_before(unsigned term, unsigned other)
{
    return (int)(term - other) < 0;
}

static bool is_same(const struct addrinfo *one,
                    const struct sockaddr_storage *name, socklen_t size)
{
    return one->ai_addrlen == size && memcmp(one->ai_addr, name, size) == 0;
}

static const struct addrinfo *choose_locked(const struct shed_address *a,
                                            const struct addrinfo *list)
{
    for (const struct addrinfo *one = list; one->ai_next != NULL;
         one = one->ai_next)
        if (is_same(one, &a->refused, a->refused_size))
            return one->ai_next;
    return list;
}

void shed_address_set(struct shed_address *a, unsigned term,
                      const struct addrinfo *list, const char *failure)
{
    shed_mutex_lock(&a->mu);
    /* the session's two connections each look up: one of an earlier term can
       take longer */
    if (is_before(term, a->looked_up_term)) {
        shed_mutex_unlock(&a->mu);
        return;
    }
    if (list != NULL) {
        list = choose_locked(a, list);
        assert(list->ai_addrlen <= sizeof(a->name));
        memcpy(&a->name, list->ai_addr, list->ai_addrlen);
        a->name_size = list->ai_addrlen;
    } else {
        (void)shed_fail(&a->why, SHED_EREDIS, "Redis %s %s: %s",
                        a->sentinels != NULL ? "primary" : "host", a->host,
                        failure);
    }
    a->looked_up_term = term;
    pthread_cond_broadcast(&a->looked_up);
    shed_mutex_unlock(&a->mu);
}

/* In a term that began with leaving a server, connections wait for a lookup. */
bool shed_address_is_elsewhere(struct shed_address *a, unsigned term,
                               const struct addrinfo *list)
{
    bool is_elsewhere;

    shed_mutex_lock(&a->mu);
    is_elsewhere = a->name_size > 0 && a->looked_up_term == term;
    for (; list != NULL && is_elsewhere; list = list->ai_next)
        is_elsewhere = !is_same(list, &a->name, a->name_size);
    shed_mutex_unlock(&a->mu);
    return is_elsewhere;
}

/* If another connection has moved on from the address that is refused, the next
 * one is skipped. The lookups after that come back to it. */
void shed_address_refuse(struct shed_address *a)
{
    shed_mutex_lock(&a->mu);
    a->refused = a->name;
    a->refused_size = a->name_size;
    shed_mutex_unlock(&a->mu);
}

bool shed_address_is_refused(struct shed_address *a)
{
    bool is_refused;

    shed_mutex_lock(&a->mu);
    is_refused = a->refused_size == a->name_size &&
                 memcmp(&a->refused, &a->name, a->name_size) == 0;
    shed_mutex_unlock(&a->mu);
    return is_refused;
}

void shed_address_await(struct shed_address *a, unsigned term,
                        uint64_t deadline_ms)
{
    if (a->host == NULL)
        return; /* a path needs no lookup */
    shed_mutex_lock(&a->mu);
    while (is_before(a->looked_up_term, term) &&
           shed_cond_wait(&a->looked_up, &a->mu, deadline_ms))
        ;
    shed_mutex_unlock(&a->mu);
}
