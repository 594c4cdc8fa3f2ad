/* The URI and the options that a source and shed_mysql_connect share. The
 * ranges are as snowshed/mysql.h states them. */
#include "mysql/config.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* -------------------------------------------------------------------- URIs */

#define SCHEME "mysql://"
#define NAME "MySQL URI"

enum { DEFAULT_PORT = 3306 };

static const struct shed_uri_form form = {
    .name = NAME,
    .user_stops = "?", /* an '@' behind it belongs to the socket */
    .has_host = true,
    .path = "database",
    .parameters = {"socket"},
    .parameter_rule = "the only parameter is ?socket=/path; write %3F for "
                      "a '?' in the password"};

static enum shed_code take_host(struct shed_mysql_uri *uri,
                                struct shed_error *err)
{
    char *rest = uri->parts.hosts.text;
    struct shed_uri_part host;
    enum shed_code code;

    if (*rest == '\0')
        return SHED_OK;
    code = shed_uri_next_host(NAME, &rest, &host, &uri->port, err);
    uri->host = host.text;
    if (code == SHED_OK && rest != NULL)
        code = shed_fail(err, SHED_EINVAL, "MySQL URI: it has several hosts");
    return code;
}

static enum shed_code check_uri(const struct shed_mysql_uri *uri,
                                struct shed_error *err)
{
    if (uri->user != NULL && *uri->user == '\0')
        return shed_fail(err, SHED_EINVAL, "MySQL URI: the user is empty");
    if (uri->database == NULL || *uri->database == '\0')
        return shed_fail(err, SHED_EINVAL, "MySQL URI: it names no database");
    if (uri->socket != NULL && *uri->socket != '/')
        return shed_fail(err, SHED_EINVAL,
                         "MySQL URI: the socket is not an absolute path");
    if ((uri->host == NULL) == (uri->socket == NULL))
        return shed_fail(err, SHED_EINVAL,
                         "MySQL URI: it has %s: give one of the two",
                         uri->host != NULL ? "both a host and a socket"
                                           : "no host and no socket");
    return SHED_OK;
}

enum shed_code shed_mysql_uri_parse(const char *text,
                                    struct shed_mysql_uri *out,
                                    struct shed_error *err)
{
    const struct shed_uri *parts = &out->parts;
    enum shed_code code;

    *out = (struct shed_mysql_uri){.port = DEFAULT_PORT};
    if (!shed_uri_has_scheme(text, SCHEME))
        return shed_fail(err, SHED_EINVAL,
                         "MySQL URI: it must begin with " SCHEME);
    code = shed_uri_parse(&form, text + strlen(SCHEME), &out->parts, err);
    if (code != SHED_OK)
        return code;
    out->user = parts->user.text;
    out->password = parts->password.text;
    out->socket = parts->parameters[0].text;
    out->database = parts->path.text;
    code = take_host(out, err);
    if (code == SHED_OK)
        code = check_uri(out, err);
    if (code != SHED_OK)
        shed_mysql_uri_fini(out);
    return code;
}

void shed_mysql_uri_fini(struct shed_mysql_uri *uri)
{
    shed_uri_fini(&uri->parts);
    *uri = (struct shed_mysql_uri){0};
}

/* ----------------------------------------------------------------- options */

enum {
    MS_PER_S = 1000,
    CONNECT_TIMEOUT_MAX_MS = 600000,
    READ_TIMEOUT_MAX_MS = 3600000
};

/* The library counts timeouts in whole seconds. */
static enum shed_code check_seconds(uint64_t ms, uint64_t max_ms,
                                    const char *what, struct shed_error *err)
{
    enum shed_code code = shed_check_range(ms, MS_PER_S, max_ms, what, err);

    if (code == SHED_OK && ms % MS_PER_S != 0)
        code = shed_fail(err, SHED_EINVAL,
                         "%s is %" PRIu64 ", must be a multiple of %d", what,
                         ms, (int)MS_PER_S);
    return code;
}

static enum shed_code check_options(const struct shed_mysql_options *o,
                                    struct shed_error *err)
{
    enum shed_code code =
        check_seconds(o->connect_timeout_ms, CONNECT_TIMEOUT_MAX_MS,
                      "MySQL connect_timeout_ms", err);

    if (code == SHED_OK)
        code = check_seconds(o->read_timeout_ms, READ_TIMEOUT_MAX_MS,
                             "MySQL read_timeout_ms", err);
    if (code == SHED_OK && (o->tls_cert == NULL) != (o->tls_key == NULL))
        code = shed_fail(err, SHED_EINVAL,
                         "MySQL tls_cert and tls_key: set both or neither");
    return code;
}

/* Copy a text that may be NULL. Returns false when out of memory. */
static bool copy_text(char **to, const char *from)
{
    *to = from != NULL ? strdup(from) : NULL;
    return from == NULL || *to != NULL;
}

enum shed_code shed_mysql_config_init(struct shed_mysql_config *out,
                                      const char *uri,
                                      const struct shed_mysql_options *given,
                                      struct shed_mysql_options *taken,
                                      struct shed_error *err)
{
    enum shed_code code;

    *out = (struct shed_mysql_config){0};
    *taken = (struct shed_mysql_options)SHED_MYSQL_OPTIONS_INIT;
    code = shed_options_take(taken, sizeof(*taken), given,
                             "struct shed_mysql_options", err);
    if (code == SHED_OK)
        code = check_options(taken, err);
    if (code == SHED_OK)
        code = shed_mysql_uri_parse(uri, &out->uri, err);
    if (code != SHED_OK)
        return code;
    out->connect_timeout_s = (unsigned)(taken->connect_timeout_ms / MS_PER_S);
    out->read_timeout_s = (unsigned)(taken->read_timeout_ms / MS_PER_S);
    if (!copy_text(&out->tls_ca, taken->tls_ca) ||
        !copy_text(&out->tls_cert, taken->tls_cert) ||
        !copy_text(&out->tls_key, taken->tls_key))
        return shed_fail_nomem(err, "a MySQL connection's options");
    return SHED_OK;
}

void shed_mysql_config_fini(struct shed_mysql_config *config)
{
    shed_mysql_uri_fini(&config->uri);
    free(config->tls_ca);
    free(config->tls_cert);
    free(config->tls_key);
    *config = (struct shed_mysql_config){0};
}
