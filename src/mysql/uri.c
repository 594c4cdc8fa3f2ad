/* The parts of a MySQL URI, and which of them are required. */
#include "mysql/uri.h"

#include <string.h>

#include "base/error.h"

#define SCHEME "mysql://"

enum { DEFAULT_PORT = 3306 };

static const struct shed_uri_form form = {
    .name = "MySQL URI",
    .user_stops = "?", /* an '@' behind it belongs to the socket */
    .has_host = true,
    .path = "database",
    .parameters = {"socket"},
    .parameter_rule = "the only parameter is ?socket=/path; write %3F for "
                      "a '?' in the password"};

static enum shed_code check(const struct shed_mysql_uri *uri,
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

    *out = (struct shed_mysql_uri){0};
    if (!shed_uri_has_scheme(text, SCHEME))
        return shed_fail(err, SHED_EINVAL,
                         "MySQL URI: it must begin with " SCHEME);
    code = shed_uri_parse(&form, text + strlen(SCHEME), &out->parts, err);
    if (code != SHED_OK)
        return code;
    out->user = parts->user.text;
    out->password = parts->password.text;
    out->host = parts->host.size > 0 ? parts->host.text : NULL;
    out->port = parts->port != 0 ? parts->port : DEFAULT_PORT;
    out->socket = parts->parameters[0].text;
    out->database = parts->path.text;
    code = check(out, err);
    if (code != SHED_OK)
        shed_mysql_uri_fini(out);
    return code;
}

void shed_mysql_uri_fini(struct shed_mysql_uri *uri)
{
    shed_uri_fini(&uri->parts);
    *uri = (struct shed_mysql_uri){0};
}
