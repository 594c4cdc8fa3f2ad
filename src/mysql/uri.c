/*
 * Parses the URI in a copy of it, in place: the parts are cut where a
 * delimiter stands and are decoded afterwards, so an encoded delimiter is part
 * of a name. Its one invariant: the copy is wiped before it is freed.
 */
#include "mysql/uri.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define SCHEME "mysql://"
#define SOCKET_PARAMETER "socket="

enum {
    DEFAULT_PORT = 3306,
    PORT_MAX = 65535,
    DECIMAL = 10,
    HEX_DIGIT_BITS = 4
};

/* End the text at the first or last delimiter in it. Returns what follows it,
 * NULL if there is none. */
static char *cut(char *text, char delimiter, bool is_last)
{
    char *at = is_last ? strrchr(text, delimiter) : strchr(text, delimiter);

    if (at == NULL)
        return NULL;
    *at = '\0';
    return at + 1;
}

static int hex_digit(char c)
{
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    const char *at = c != '\0' ? strchr(digits, c) : NULL;

    return at != NULL ? (int)((at - digits) % (1 << HEX_DIGIT_BITS)) : -1;
}

/* Undo the percent-encoding in place. Returns false if it is wrong, or if it
 * would end the text: a name with a zero byte is none. */
static bool decode(char *text)
{
    char *to = text;

    for (const char *from = text; *from != '\0'; to++) {
        int high, low;
        if (*from != '%') {
            *to = *from++;
            continue;
        }
        high = hex_digit(from[1]);
        low = high < 0 ? -1 : hex_digit(from[2]);
        if (low < 0 || (high == 0 && low == 0))
            return false;
        *to = (char)(high << HEX_DIGIT_BITS | low);
        from += sizeof("%hh") - 1;
    }
    *to = '\0';
    return true;
}

static bool parse_port(const char *text, unsigned *port)
{
    unsigned value = 0;

    if (*text == '\0')
        return false;
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9')
            return false;
        value = value * DECIMAL + (unsigned)(*text - '0');
        if (value > PORT_MAX)
            return false;
    }
    *port = value;
    return value > 0;
}

/* user[:password], already cut out. */
static enum shed_code parse_user(char *text, struct shed_mysql_uri *out,
                                 struct shed_error *err)
{
    char *password = cut(text, ':', false);

    if (!decode(text))
        return shed_fail(err, SHED_EINVAL,
                         "MySQL URI: the user is not percent-encoded rightly");
    if (password != NULL && !decode(password))
        return shed_fail(
            err, SHED_EINVAL,
            "MySQL URI: the password is not percent-encoded rightly");
    if (*text == '\0')
        return shed_fail(err, SHED_EINVAL, "MySQL URI: the user is empty");
    out->user = text;
    out->password = password;
    return SHED_OK;
}

/* host[:port], or [host]:port for an address of IPv6. */
static enum shed_code parse_host(char *text, struct shed_mysql_uri *out,
                                 struct shed_error *err)
{
    char *port = NULL;

    if (*text == '[') {
        char *rest = cut(++text, ']', false);
        if (rest == NULL || (*rest != '\0' && *rest != ':'))
            return shed_fail(err, SHED_EINVAL,
                             "MySQL URI: '[' without ']' in the host");
        port = *rest == ':' ? rest + 1 : NULL;
    } else {
        port = cut(text, ':', false);
    }
    if (port != NULL && !parse_port(port, &out->port))
        return shed_fail(err, SHED_EINVAL,
                         "MySQL URI: the port is not in [1, %d]", PORT_MAX);
    if (!decode(text))
        return shed_fail(err, SHED_EINVAL,
                         "MySQL URI: the host is not percent-encoded rightly");
    if (*text == '\0' && port != NULL)
        return shed_fail(err, SHED_EINVAL, "MySQL URI: a port without a host");
    out->host = *text != '\0' ? text : NULL;
    return SHED_OK;
}

static enum shed_code parse_parameters(char *text, struct shed_mysql_uri *out,
                                       struct shed_error *err)
{
    if (text == NULL)
        return SHED_OK;
    if (strncmp(text, SOCKET_PARAMETER, strlen(SOCKET_PARAMETER)) != 0 ||
        strchr(text, '&') != NULL)
        return shed_fail(err, SHED_EINVAL,
                         "MySQL URI: the only parameter is ?socket=/path");
    text += strlen(SOCKET_PARAMETER);
    if (!decode(text) || *text != '/')
        return shed_fail(err, SHED_EINVAL,
                         "MySQL URI: the socket is not an absolute path");
    out->socket = text;
    return SHED_OK;
}

static enum shed_code parse_database(char *text, struct shed_mysql_uri *out,
                                     struct shed_error *err)
{
    if (text == NULL || *text == '\0')
        return shed_fail(err, SHED_EINVAL, "MySQL URI: it names no database");
    /* An '@' here is a password's with a '/' in it: server errors would quote
     * it as the name of a database. */
    if (strpbrk(text, "/@") != NULL || !decode(text))
        return shed_fail(
            err, SHED_EINVAL,
            "MySQL URI: the database is not percent-encoded rightly");
    out->database = text;
    return SHED_OK;
}

/* text is what follows mysql://. */
static enum shed_code parse_parts(char *text, struct shed_mysql_uri *out,
                                  struct shed_error *err)
{
    char *parameters = cut(text, '?', false);
    char *database = cut(text, '/', false);
    char *host = cut(text, '@', true);
    enum shed_code code = SHED_OK;

    if (host != NULL)
        code = parse_user(text, out, err);
    if (code == SHED_OK)
        code = parse_host(host != NULL ? host : text, out, err);
    if (code == SHED_OK)
        code = parse_database(database, out, err);
    if (code == SHED_OK)
        code = parse_parameters(parameters, out, err);
    if (code == SHED_OK && (out->host == NULL) == (out->socket == NULL))
        code = shed_fail(err, SHED_EINVAL,
                         "MySQL URI: it must have a host or a socket, not %s",
                         out->host != NULL ? "both" : "neither");
    return code;
}

enum shed_code shed_mysql_uri_parse(const char *text,
                                    struct shed_mysql_uri *out,
                                    struct shed_error *err)
{
    enum shed_code code;

    *out = (struct shed_mysql_uri){.port = DEFAULT_PORT};
    if (strncmp(text, SCHEME, strlen(SCHEME)) != 0)
        return shed_fail(err, SHED_EINVAL,
                         "MySQL URI: it does not begin with " SCHEME);
    text += strlen(SCHEME);
    out->text = strdup(text);
    if (out->text == NULL)
        return shed_fail_nomem(err, "a MySQL URI");
    out->text_size = strlen(text);
    code = parse_parts(out->text, out, err);
    if (code != SHED_OK)
        shed_mysql_uri_fini(out);
    return code;
}

void shed_mysql_uri_fini(struct shed_mysql_uri *uri)
{
    if (uri->text != NULL)
        explicit_bzero(uri->text, uri->text_size);
    free(uri->text);
    *uri = (struct shed_mysql_uri){0};
}
