/*
 * A copy of the text is cut at its delimiters first and each part decoded in
 * place afterwards, so that an encoded delimiter is an ordinary byte of a part
 * (RFC 3986, section 2.4). Its one invariant: after fini, or after a failure,
 * nothing of the copy is left in memory.
 */
#include "base/uri.h"

#include <assert.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

enum { PORT_MAX = 65535, DECIMAL = 10, HEX_DIGIT_BITS = 4 };

/* --------------------------------------------------------------- cutting */

/* End a part at a delimiter. Returns the rest behind it; no part if at is
 * NULL. */
static struct shed_uri_part cut_at(struct shed_uri_part *part, char *at)
{
    struct shed_uri_part rest = {NULL, 0};

    if (at == NULL)
        return rest;
    assert(at >= part->text && at < part->text + part->size);
    rest.text = at + 1;
    rest.size = part->size - (size_t)(rest.text - part->text);
    part->size = (size_t)(at - part->text);
    *at = '\0';
    return rest;
}

static struct shed_uri_part cut(struct shed_uri_part *part, char delimiter)
{
    return cut_at(part, memchr(part->text, delimiter, part->size));
}

/* Find the '@' behind user and password; NULL if there is none. The last '@' is
 * taken, so that an unencoded '@' in a password does not move the rest of the
 * password into the host, which reasons show. */
static char *find_user_end(struct shed_uri_part part, const char *stops)
{
    size_t size = strcspn(part.text, stops);

    while (size > 0 && part.text[size - 1] != '@')
        size--;
    return size > 0 ? part.text + size - 1 : NULL;
}

/* -------------------------------------------------------------- decoding */

static int hex_digit(char c)
{
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    const char *at = c != '\0' ? strchr(digits, c) : NULL;

    return at != NULL ? (int)((at - digits) % (1 << HEX_DIGIT_BITS)) : -1;
}

/* Undo the percent-encoding of a part in place. A zero byte is refused, because
 * it would end the text for C functions. */
static enum shed_code decode(const char *name, const char *what,
                             struct shed_uri_part *part, struct shed_error *err)
{
    char *to = part->text;

    if (part->text == NULL)
        return SHED_OK;
    /* the part is terminated, so no digit is read behind its end */
    for (const char *from = part->text; *from != '\0';) {
        int high = 0, low = 0;
        if (*from != '%') {
            *to++ = *from++;
            continue;
        }
        high = hex_digit(from[1]);
        low = high < 0 ? -1 : hex_digit(from[2]);
        if (low < 0 || (high == 0 && low == 0))
            return shed_fail(err, SHED_EINVAL,
                             "%s: the %s has a bad %% escape: write %%25 for a "
                             "percent sign",
                             name, what);
        *to++ = (char)(high << HEX_DIGIT_BITS | low);
        from += sizeof("%hh") - 1;
    }
    *to = '\0';
    part->size = (size_t)(to - part->text);
    return SHED_OK;
}

bool shed_uri_number(struct shed_uri_part part, unsigned min, unsigned max,
                     unsigned *out)
{
    unsigned value = 0;

    assert(max <= (UINT_MAX - (DECIMAL - 1)) / DECIMAL);
    for (size_t i = 0; i < part.size; i++) {
        if (part.text[i] < '0' || part.text[i] > '9')
            return false;
        value = value * DECIMAL + (unsigned)(part.text[i] - '0');
        if (value > max)
            return false;
    }
    if (part.size == 0 || value < min)
        return false;
    *out = value;
    return true;
}

/* ----------------------------------------------------------------- parts */

/* Parse [address], and cut out *port behind it. */
static enum shed_code cut_brackets(const char *name, struct shed_uri_part *host,
                                   struct shed_uri_part *port,
                                   struct shed_error *err)
{
    struct shed_uri_part rest = cut(host, ']');

    if (rest.text == NULL)
        return shed_fail(err, SHED_EINVAL, "%s: the host has '[' without ']'",
                         name);
    if (rest.size > 0 && rest.text[0] != ':')
        return shed_fail(err, SHED_EINVAL,
                         "%s: only ':' and a port may follow ']' of the host",
                         name);
    if (rest.size > 0)
        *port = cut(&rest, ':');
    host->text++;
    host->size--;
    return SHED_OK;
}

enum shed_code shed_uri_next_host(const char *name, char **list,
                                  struct shed_uri_part *host, unsigned *port,
                                  struct shed_error *err)
{
    struct shed_uri_part digits = {NULL, 0};
    enum shed_code code = SHED_OK;

    *host = (struct shed_uri_part){*list, strlen(*list)};
    *list = cut(host, ',').text;
    if (host->text[0] == '[')
        code = cut_brackets(name, host, &digits, err);
    else
        digits = cut(host, ':');
    if (code == SHED_OK)
        code = decode(name, "host", host, err);
    if (code != SHED_OK)
        return code;
    if (host->size == 0)
        return shed_fail(err, SHED_EINVAL, "%s: a host is missing", name);
    if (digits.text != NULL && !shed_uri_number(digits, 1, PORT_MAX, port))
        return shed_fail(err, SHED_EINVAL,
                         "%s: the port must be a number from 1 to %d", name,
                         PORT_MAX);
    return SHED_OK;
}

/* name=value, already cut out */
static enum shed_code take_parameter(const struct shed_uri_form *form,
                                     struct shed_uri *out,
                                     struct shed_uri_part part,
                                     struct shed_error *err)
{
    struct shed_uri_part value = cut(&part, '=');

    for (size_t i = 0; i < SHED_URI_PARAMETERS_MAX; i++) {
        if (form->parameters[i] == NULL || value.text == NULL ||
            strcmp(part.text, form->parameters[i]) != 0 ||
            out->parameters[i].text != NULL)
            continue;
        out->parameters[i] = value;
        return SHED_OK;
    }
    return shed_fail(err, SHED_EINVAL, "%s: %s", form->name,
                     form->parameter_rule);
}

/* Cut what follows the scheme. */
static enum shed_code cut_all(const struct shed_uri_form *form,
                              struct shed_uri *out, struct shed_uri_part text,
                              struct shed_error *err)
{
    struct shed_uri_part rest, parameters;
    enum shed_code code = SHED_OK;

    rest = cut_at(&text, find_user_end(text, form->user_stops));
    if (rest.text != NULL) {
        out->password = cut(&text, ':');
        out->user = text;
    } else {
        rest = text;
    }
    parameters = cut(&rest, '?');
    out->path = form->has_host ? cut(&rest, '/') : rest;
    if (form->has_host)
        out->hosts = rest;
    if (form->has_host && out->path.text != NULL &&
        memchr(out->path.text, '/', out->path.size) != NULL)
        code = shed_fail(err, SHED_EINVAL,
                         "%s: the %s has a '/': write %%2F for it", form->name,
                         form->path);
    while (code == SHED_OK && parameters.text != NULL) {
        rest = cut(&parameters, '&');
        code = take_parameter(form, out, parameters, err);
        parameters = rest;
    }
    return code;
}

static enum shed_code decode_all(const struct shed_uri_form *form,
                                 struct shed_uri *out, struct shed_error *err)
{
    enum shed_code code = decode(form->name, "user", &out->user, err);

    if (code == SHED_OK)
        code = decode(form->name, "password", &out->password, err);
    if (code == SHED_OK)
        code = decode(form->name, form->path, &out->path, err);
    for (size_t i = 0; i < SHED_URI_PARAMETERS_MAX && code == SHED_OK; i++)
        code =
            decode(form->name, form->parameters[i], &out->parameters[i], err);
    return code;
}

/* ------------------------------------------------------------------ whole */

bool shed_uri_has_scheme(const char *text, const char *scheme)
{
    return strncmp(text, scheme, strlen(scheme)) == 0;
}

enum shed_code shed_uri_parse(const struct shed_uri_form *form,
                              const char *text, struct shed_uri *out,
                              struct shed_error *err)
{
    enum shed_code code;

    *out = (struct shed_uri){.buffer_size = strlen(text) + 1};
    out->buffer = malloc(out->buffer_size);
    if (out->buffer == NULL) {
        *out = (struct shed_uri){0};
        return shed_fail(err, SHED_ENOMEM, "out of memory for a %s",
                         form->name);
    }
    memcpy(out->buffer, text, out->buffer_size);
    code =
        cut_all(form, out,
                (struct shed_uri_part){out->buffer, out->buffer_size - 1}, err);
    if (code == SHED_OK)
        code = decode_all(form, out, err);
    if (code != SHED_OK)
        shed_uri_fini(out);
    return code;
}

void shed_uri_fini(struct shed_uri *uri)
{
    if (uri->buffer != NULL)
        explicit_bzero(uri->buffer, uri->buffer_size);
    free(uri->buffer);
    *uri = (struct shed_uri){0};
}
