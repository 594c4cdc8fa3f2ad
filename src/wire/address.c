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

#define PATH_FORM(begin)                                                       \
    {                                                                          \
        .name = "Redis URI", .scheme = (begin),                                \
        .user_stops = "/", /* an '@' behind it belongs to the path */          \
            .path = "path", .parameters = {"db"},                              \
        .parameter_rule = "only ?db=n may follow the path"                     \
    }

#define HOST_FORM(begin)                                                       \
    {                                                                          \
        .name = "Redis URI", .scheme = (begin),                                \
        .user_stops = "", /* any delimiter may be in a password */             \
            .has_host = true, .path = "database",                              \
        .parameter_rule =                                                      \
            "there is no '?' in " begin ": write the database as /n"           \
    }

#define CLUSTER_FORM_OF(begin)                                                 \
    {                                                                          \
        .name = "Redis URI", .scheme = (begin),                                \
        .user_stops = "", /* any delimiter may be in a password */             \
            .has_host = true, .has_hosts = true, .path = "database",           \
        .parameter_rule = "there is no '?' in " begin                          \
    }

/* Of parameters. */
enum { DB, SENTINEL_USER, SENTINEL_PASSWORD };

/* Of the forms with several hosts, among the forms; those with TLS follow. */
enum { SENTINEL_FORM, CLUSTER_FORM = SENTINEL_FORM + 2 };

#define SENTINEL_FORM_OF(begin)                                                \
    {                                                                          \
        .name = "Redis URI", .scheme = (begin),                                \
        .user_stops = "/?", /* a parameter can have an '@' */                  \
            .has_host = true, .has_hosts = true,                               \
        .path = "name of the primary",                                         \
        .parameters = {"db", "sentinel_user", "sentinel_password"},            \
        .parameter_rule = "only db=n, sentinel_user=name and "                 \
                          "sentinel_password=password may follow '?'"          \
    }

/* The first form with a matching scheme is used. */
static const struct shed_uri_form forms[] = {
    [SENTINEL_FORM] = SENTINEL_FORM_OF("redis+sentinel://"),
    SENTINEL_FORM_OF("rediss+sentinel://"),
    [CLUSTER_FORM] = CLUSTER_FORM_OF("redis+cluster://"),
    CLUSTER_FORM_OF("rediss+cluster://"),
    HOST_FORM("redis://"),
    HOST_FORM("rediss://"),
    HOST_FORM("valkey://"),
    HOST_FORM("valkeys://"),
    PATH_FORM("unix://"),
    PATH_FORM("unix:"),
};

static bool is_tls(const struct shed_uri_form *form)
{
    return strncmp(form->scheme, "rediss", strlen("rediss")) == 0 ||
           strcmp(form->scheme, "valkeys://") == 0;
}

static enum shed_code find_form(const char *uri,
                                const struct shed_uri_form **out,
                                struct shed_error *err)
{
    for (size_t i = 0; i < sizeof(forms) / sizeof(*forms); i++)
        if (shed_uri_has_scheme(&forms[i], uri)) {
            *out = &forms[i];
            return SHED_OK;
        }
    return shed_fail(err, SHED_EINVAL,
                     "Redis URI: it must begin with redis://, rediss://, "
                     "unix:, redis+sentinel:// or redis+cluster://");
}

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

    if (!shed_uri_number(part, 0, DB_MAX, &db))
        return shed_fail(err, SHED_EINVAL,
                         "Redis URI: the database must be a number from 0 to "
                         "%d",
                         DB_MAX);
    (void)snprintf(a->db, sizeof(a->db), "%u", db);
    return SHED_OK;
}

/* port 0: the usual one. */
static void write_port(struct shed_address *a, unsigned port, unsigned usual)
{
    (void)snprintf(a->port_text, sizeof(a->port_text), "%u",
                   port != 0 ? port : usual);
    a->port = a->port_text;
}

static enum shed_code take_db_parameter(struct shed_address *a,
                                        struct shed_error *err)
{
    struct shed_uri_part part = a->uri.parameters[DB];

    return part.text != NULL ? take_db(a, part, err) : SHED_OK;
}

static enum shed_code take_host(struct shed_address *a, struct shed_error *err)
{
    const struct shed_uri *uri = &a->uri;

    if (uri->host.size == 0)
        return shed_fail(err, SHED_EINVAL, "Redis URI: the host is missing");
    a->host = uri->host.text;
    write_port(a, uri->port, DEFAULT_PORT);
    return uri->path.size > 0 ? take_db(a, uri->path, err) : SHED_OK;
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
    return take_db_parameter(a, err);
}

/* A list of hosts is cut when they are asked; here it is checked. */
static enum shed_code check_hosts(const char *list, const char *what,
                                  size_t limit, struct shed_error *err)
{
    char *copy = strdup(list), *rest = copy;
    enum shed_code code =
        copy != NULL ? SHED_OK : shed_fail_nomem(err, "a Redis URI");
    size_t count = 0;

    for (; code == SHED_OK && rest != NULL; count++) {
        struct shed_uri_part host;
        unsigned port;
        code =
            shed_uri_next_host(&forms[SENTINEL_FORM], &rest, &host, &port, err);
    }
    if (code == SHED_OK && count > limit)
        code =
            shed_fail(err, SHED_EINVAL, "Redis URI: it has %zu %s, at most %zu",
                      count, what, limit);
    free(copy);
    return code;
}

static enum shed_code take_sentinels(struct shed_address *a,
                                     struct shed_error *err)
{
    const struct shed_uri *uri = &a->uri;
    enum shed_code code =
        check_hosts(uri->host.text, "sentinels", SHED_SENTINELS_MAX, err);

    if (code == SHED_OK && uri->path.size == 0)
        code = shed_fail(err, SHED_EINVAL,
                         "Redis URI: the name of the primary is missing: "
                         "redis+sentinel://host,host,host/name");
    if (code != SHED_OK)
        return code;
    a->sentinels = uri->host.text;
    a->host = uri->path.text;
    a->port = ""; /* the sentinels say it */
    if (uri->parameters[SENTINEL_USER].text != NULL &&
        uri->parameters[SENTINEL_PASSWORD].text == NULL)
        return shed_fail(err, SHED_EINVAL,
                         "Redis URI: sentinel_user needs a sentinel_password");
    a->sentinel_user = uri->parameters[SENTINEL_USER].text;
    a->sentinel_password = uri->parameters[SENTINEL_PASSWORD].text;
    a->looked_up_term = 0U - 1; /* nobody has asked them yet */
    return take_db_parameter(a, err);
}

/* The databases of a cluster are one. */
static enum shed_code take_seeds(struct shed_address *a, struct shed_error *err)
{
    const struct shed_uri *uri = &a->uri;
    enum shed_code code =
        check_hosts(uri->host.text, "nodes", SHED_SEEDS_MAX, err);

    if (code == SHED_OK && uri->path.size > 0)
        code = shed_fail(err, SHED_EINVAL,
                         "Redis URI: a cluster has no databases: write it "
                         "without what follows '/'");
    a->seeds = uri->host.text;
    return code;
}

/* A host name that does not resolve is treated like a server that is down: it
 * may resolve later. */
void shed_address_resolve(struct shed_address *a)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    int failure = getaddrinfo(a->host, a->port, &hints, &list);

    if (failure != 0) {
        shed_address_set(a, 0, NULL, gai_strerror(failure));
        return;
    }
    shed_address_set(a, 0, list, NULL);
    freeaddrinfo(list);
}

/* The same for an IP address; a name is left for a lookup. */
static void resolve_number(struct shed_address *a)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC,
                                   .ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_NUMERICHOST};
    struct addrinfo *list = NULL;

    if (getaddrinfo(a->host, a->port, &hints, &list) == 0) {
        shed_address_set(a, 0, list, NULL);
        freeaddrinfo(list);
    } else {
        a->looked_up_term = 0U - 1; /* nobody has looked it up yet */
    }
}

static enum shed_code make_text(struct shed_address *a, struct shed_error *err)
{
    const char *path =
        ((const struct sockaddr_un *)(const void *)&a->name)->sun_path;
    size_t size = a->host != NULL
                      ? strlen(a->host) + strlen(a->port) + sizeof(":")
                      : strlen(a->seeds != NULL ? a->seeds : path) + 1;

    a->text = malloc(size);
    if (a->text == NULL)
        return shed_fail_nomem(err, "a Redis URI");
    if (a->host == NULL)
        memcpy(a->text, a->seeds != NULL ? a->seeds : path, size);
    else
        (void)snprintf(a->text, size, a->sentinels != NULL ? "%s" : "%s:%s",
                       a->host, a->port);
    return SHED_OK;
}

static enum shed_code parse(struct shed_address *a, const char *text,
                            struct shed_error *err)
{
    const struct shed_uri_form *form;
    enum shed_code code = find_form(text, &form, err);

    if (code == SHED_OK)
        code = shed_uri_parse(form, text, &a->uri, err);
    if (code == SHED_OK)
        code = take_user(a, err);
    if (code == SHED_OK)
        a->is_tls = is_tls(form);
    if (code == SHED_OK)
        code = form->has_hosts  ? form < &forms[CLUSTER_FORM]
                                      ? take_sentinels(a, err)
                                      : take_seeds(a, err)
                : form->has_host ? take_host(a, err)
                                : take_path(a, err);
    if (code == SHED_OK)
        code = make_text(a, err);
    return code;
}

/* Returns: NULL when out of memory. */
static struct shed_address *alloc(void)
{
    struct shed_address *a = calloc(1, sizeof(*a));

    if (a == NULL)
        return NULL;
    if (shed_mutex_init(&a->mu, SHED_RANK_ADDRESS) != 0) {
        free(a);
        return NULL;
    }
    if (shed_cond_init(&a->looked_up) != 0) {
        shed_mutex_destroy(&a->mu);
        free(a);
        return NULL;
    }
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
        shed_address_destroy(a);
        return code;
    }
    if (a->host != NULL && a->sentinels == NULL)
        shed_address_resolve(a);
    *out = a;
    return SHED_OK;
}

static bool keep_text(char **to, const char *from)
{
    free(*to);
    *to = from != NULL ? strdup(from) : NULL;
    return from == NULL || *to != NULL;
}

/* For connections to sentinels and nodes that are found later. */
static bool keep_options(struct shed_address *a,
                         const struct shed_client_options *o)
{
    return keep_text(&a->tls_ca, o->tls_ca) &&
           keep_text(&a->tls_cert, o->tls_cert) &&
           keep_text(&a->tls_key, o->tls_key);
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
    if ((a->seeds != NULL || a->sentinels != NULL) && !keep_options(a, o))
        return shed_fail_nomem(err, "a Redis URI");
    /* each node of a cluster has its own */
    return a->is_tls && a->seeds == NULL
               ? shed_tls_server_create(a->text, o, &a->tls, err)
               : SHED_OK;
}

bool shed_address_seed(const struct shed_address *cluster, size_t i,
                       char host[SHED_HOST_BYTES], char port[SHED_PORT_BYTES])
{
    char *copy = strdup(cluster->seeds), *rest = copy;
    struct shed_uri_part part = {NULL, 0};
    bool is_found = copy != NULL;
    unsigned number = 0;

    for (size_t at = 0; at <= i && is_found; at++)
        is_found =
            rest != NULL && shed_uri_next_host(&forms[CLUSTER_FORM], &rest,
                                               &part, &number, NULL) == SHED_OK;
    if (is_found && part.size < SHED_HOST_BYTES) {
        memcpy(host, part.text, part.size + 1);
        (void)snprintf(port, SHED_PORT_BYTES, "%u",
                       number != 0 ? number : DEFAULT_PORT);
    }
    free(copy);
    return is_found && part.size < SHED_HOST_BYTES;
}

/* Finish an address that is no URI's, whose host and port are set if code says
 * so; if not, or if it cannot be finished, destroy it. */
static enum shed_code finish(struct shed_address *a, enum shed_code code,
                             const struct shed_client_options *options,
                             struct shed_address **out, struct shed_error *err)
{
    if (code == SHED_OK)
        code = make_text(a, err);
    if (code == SHED_OK)
        code = shed_address_use_tls(a, options, err);
    if (code == SHED_OK)
        *out = a;
    else
        shed_address_destroy(a);
    return code;
}

enum shed_code
shed_address_create_node(const struct shed_address *cluster, const char *host,
                         const char *port,
                         const struct shed_client_options *options,
                         struct shed_address **out, struct shed_error *err)
{
    struct shed_address *a = alloc();

    *out = NULL;
    if (a == NULL)
        return shed_fail_nomem(err, "a node of a cluster");
    a->is_node = true;
    a->user = cluster->user;
    a->password = cluster->password;
    a->is_tls = cluster->is_tls;
    (void)snprintf(a->host_text, sizeof(a->host_text), "%s", host);
    (void)snprintf(a->port_text, sizeof(a->port_text), "%s", port);
    a->host = a->host_text;
    a->port = a->port_text;
    resolve_number(a);
    return finish(a, SHED_OK, options, out, err);
}

enum shed_code
shed_address_next_sentinel(char **list, const struct shed_sentinels *how,
                           const struct shed_client_options *options,
                           struct shed_address **out, struct shed_error *err)
{
    struct shed_address *a = alloc();
    struct shed_uri_part host;
    enum shed_code code;
    unsigned port;

    *out = NULL;
    if (a == NULL)
        return shed_fail_nomem(err, "a sentinel");
    a->is_guide = true;
    a->user = how->user;
    a->password = how->password;
    a->is_tls = how->is_tls;
    code = shed_uri_next_host(&forms[SENTINEL_FORM], list, &host, &port, err);
    if (code == SHED_OK) {
        a->host = host.text;
        write_port(a, port, SENTINEL_PORT);
    }
    code = finish(a, code, options, out, err);
    if (code == SHED_OK)
        resolve_number(a);
    return code;
}

void shed_address_destroy(struct shed_address *a)
{
    if (a == NULL)
        return;
    shed_tls_server_destroy(a->tls);
    free(a->tls_ca);
    free(a->tls_cert);
    free(a->tls_key);
    free(a->text);
    shed_uri_fini(&a->uri);
    pthread_cond_destroy(&a->looked_up);
    shed_mutex_destroy(&a->mu);
    free(a);
}

/* ------------------------------------------------------------- the lookup */

enum shed_code shed_address_get(struct shed_address *a,
                                struct sockaddr_storage *out, socklen_t *size,
                                struct shed_error *err)
{
    enum shed_code code = SHED_OK;

    shed_mutex_lock(&a->mu);
    *out = a->name;
    *size = a->name_size;
    if (a->name_size == 0)
        code = shed_fail(err, SHED_EREDIS, "%s", a->why.reason);
    shed_mutex_unlock(&a->mu);
    return code;
}

void shed_address_host(struct shed_address *a, char host[SHED_HOST_BYTES])
{
    shed_mutex_lock(&a->mu);
    (void)snprintf(host, SHED_HOST_BYTES, "%s",
                   a->sentinels != NULL ? a->primary : a->host);
    shed_mutex_unlock(&a->mu);
}

void shed_address_set_primary(struct shed_address *a, const char *host)
{
    if (host == NULL)
        return;
    shed_mutex_lock(&a->mu);
    (void)snprintf(a->primary, sizeof(a->primary), "%s", host);
    shed_mutex_unlock(&a->mu);
}

bool shed_address_selects(const struct shed_address *a)
{
    return a->db[0] != '\0' && strcmp(a->db, "0") != 0;
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
    uint64_t left_ms = shed_left_ms(deadline_ms, shed_now_ms());

    if (a->host == NULL)
        return; /* a path needs no lookup */
    shed_mutex_lock(&a->mu);
    while (is_before(a->looked_up_term, term) && left_ms > 0) {
        shed_cond_wait(&a->looked_up, &a->mu.mutex, left_ms);
        left_ms = shed_left_ms(deadline_ms, shed_now_ms());
    }
    shed_mutex_unlock(&a->mu);
}
