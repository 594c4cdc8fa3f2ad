/*
 * URIs of servers: SCHEME[user[:password]@]host[:port][/path][?name=value], or
 * SCHEME[user[:password]@]/path[?name=value] for a unix socket, after RFC 3986.
 * Instead of host[:port] there can be several, host[:port]{,host[:port]}, and
 * several parameters, name=value{&name=value}.
 * Pure. No reason quotes a part of a URI, because any part may be a piece of a
 * password in which a delimiter was not percent-encoded.
 */
#ifndef SHED_URI_H
#define SHED_URI_H

#include <stdbool.h>
#include <stddef.h>

#include <snowshed/snowshed.h>

#define SHED_URI_PARAMETERS_MAX 3

/* What URIs of one kind look like. */
struct shed_uri_form {
    const char *name; /* begins each reason: "Redis URI" */
    /* User and password end at the last '@' before the first of these bytes; if
     * this is "", at the last '@' of the URI. */
    const char *user_stops;
    bool has_host;    /* otherwise a path follows user and password */
    const char *path; /* the path's name in reasons: "database" */
    const char *parameters[SHED_URI_PARAMETERS_MAX]; /* that are allowed */
    const char *parameter_rule; /* the reason if another one is given */
};

/* A part of a URI, decoded and terminated; text is NULL if the part is absent.
 * No part contains a zero byte. */
struct shed_uri_part {
    char *text;
    size_t size;
};

struct shed_uri {
    struct shed_uri_part user, password;
    /* all of them as they are written, for shed_uri_next_host; present, maybe
     * empty, if the form has a host */
    struct shed_uri_part hosts;
    struct shed_uri_part path; /* with a host: the one segment behind its '/' */
    struct shed_uri_part parameters[SHED_URI_PARAMETERS_MAX]; /* values, in the
                                                                 form's order */
    /* holds the parts */
    char *buffer;
    size_t buffer_size;
};

/* Whether text begins with a scheme, with its delimiters: "redis://". */
bool shed_uri_has_scheme(const char *text, const char *scheme);

/* Parse what follows the scheme. Returns: SHED_OK and *out, to be
 * passed to fini; SHED_EINVAL, SHED_ENOMEM: *out is all zero. */
SHED_MUST_CHECK enum shed_code shed_uri_parse(const struct shed_uri_form *form,
                                              const char *text,
                                              struct shed_uri *out,
                                              struct shed_error *err);

/* Wipe and free it; it may be all zero. */
void shed_uri_fini(struct shed_uri *uri);

/* Cut the first host[:port] off a list, which *list becomes the rest of; NULL:
 * it was the last. *port stays as it is if none is given. name begins each
 * reason. Returns: SHED_OK and a host, which is not empty, without the brackets
 * of an IPv6 address; SHED_EINVAL. */
SHED_MUST_CHECK enum shed_code shed_uri_next_host(const char *name, char **list,
                                                  struct shed_uri_part *host,
                                                  unsigned *port,
                                                  struct shed_error *err);

/* Read a part as a decimal number. Returns false if it is not one, or not in
 * [min, max]. */
bool shed_uri_number(struct shed_uri_part part, unsigned min, unsigned max,
                     unsigned *out);

#endif
