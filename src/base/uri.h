/*
 * URIs of servers: SCHEME[user[:password]@]host[:port][/path][?name=value], or
 * SCHEME[user[:password]@]/path[?name=value] for a unix socket, after RFC 3986.
 * Pure. No reason quotes a part: any of them may be a piece of a password in
 * which a delimiter was not percent-encoded.
 */
#ifndef SHED_URI_H
#define SHED_URI_H

#include <stdbool.h>
#include <stddef.h>

#include <snowshed/snowshed.h>

/* What URIs of one kind look like. */
struct shed_uri_form {
    const char *name;   /* begins each reason: "Redis URI" */
    const char *scheme; /* with its delimiters: "redis://" */
    /* The user and password end at the last '@' before the first of these
     * bytes, or at the last one of all where it is "". */
    const char *user_stops;
    bool has_host;         /* else a path is what follows user and password */
    const char *path;      /* what reasons call the path: "database" */
    const char *parameter; /* the one that may be given; NULL: none may */
    const char *parameter_rule; /* the reason where another one is given */
};

/* A part of a URI, decoded and terminated; text is NULL if it is not there. No
 * part holds a zero byte. */
struct shed_uri_part {
    char *text;
    size_t size;
};

struct shed_uri {
    struct shed_uri_part user, password;
    struct shed_uri_part host; /* without the brackets of an IPv6 address; there
                                  and maybe empty if the form has it */
    unsigned port;             /* 0: none is given */
    struct shed_uri_part path; /* with a host: the one segment behind its '/' */
    struct shed_uri_part parameter; /* the value of the form's */
    /* where the parts are */
    char *buffer;
    size_t buffer_size;
};

/* Whether text begins with the form's scheme. */
bool shed_uri_has_scheme(const struct shed_uri_form *form, const char *text);

/* Take apart a text that has the form's scheme.
 * Returns: SHED_OK and *out, which is given to fini; SHED_EINVAL, SHED_ENOMEM:
 * *out is all zero. */
SHED_MUST_CHECK enum shed_code shed_uri_parse(const struct shed_uri_form *form,
                                              const char *text,
                                              struct shed_uri *out,
                                              struct shed_error *err);

/* Wipe and free it; all zero may be given too. */
void shed_uri_fini(struct shed_uri *uri);

/* Read a part as a decimal number. Returns false if it is none, or is not in
 * [min, max]. */
bool shed_uri_number(struct shed_uri_part part, unsigned min, unsigned max,
                     unsigned *out);

#endif
