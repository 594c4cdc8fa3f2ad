/*
 * Any bytes as a URI: parse reads nothing outside them, the parts are texts
 * without a zero byte in the copy that fini wipes, and no reason quotes a
 * password. The first byte chooses a form, or one of the readers of whole URIs:
 * Redis's address and MySQL's account.
 */
#include <netdb.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/uri.h"
#include "mysql/config.h"
#include "wire/address.h"

static const struct shed_uri_form forms[] = {
    {"URI", "?", true, "database", {"socket"}, "socket"},
    {"URI", "", true, "database", {NULL}, "none"},
    {"URI", "/", false, "path", {"db"}, "db"},
    {"URI", "/?", true, "name", {"db", "user", "password"}, "db"},
};

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void check(bool is_true)
{
    if (!is_true)
        abort();
}

static void check_part(const struct shed_uri *uri, struct shed_uri_part part)
{
    if (part.text == NULL)
        return;
    check(strlen(part.text) == part.size);
    check(part.text >= uri->buffer &&
          part.text + part.size < uri->buffer + uri->buffer_size);
}

static void check_parts(const struct shed_uri_form *form,
                        const struct shed_uri *uri)
{
    check_part(uri, uri->user);
    check_part(uri, uri->password);
    check_part(uri, uri->hosts);
    check_part(uri, uri->path);
    for (size_t i = 0; i < SHED_URI_PARAMETERS_MAX; i++)
        check_part(uri, uri->parameters[i]);
    check((uri->hosts.text != NULL) == form->has_host);
    for (size_t i = 0; i < SHED_URI_PARAMETERS_MAX; i++)
        check(uri->parameters[i].text == NULL || form->parameters[i] != NULL);
    check(uri->password.text == NULL || uri->user.text != NULL);
}

static void check_hosts(const struct shed_uri_form *form,
                        const struct shed_uri *uri)
{
    char *list = uri->hosts.text;

    while (list != NULL) {
        struct shed_uri_part host;
        unsigned port = 0;
        if (shed_uri_next_host(form->name, &list, &host, &port, NULL) !=
            SHED_OK)
            break;
        check_part(uri, host);
        check(host.size > 0);
    }
}

static void check_refusal(const struct shed_error *err)
{
    check(err->code == SHED_EINVAL && strstr(err->reason, "cret") == NULL);
}

static void parse_form(const struct shed_uri_form *form, const char *text)
{
    struct shed_error err = {0};
    struct shed_uri uri;

    if (shed_uri_parse(form, text, &uri, &err) == SHED_OK) {
        check_parts(form, &uri);
        check_hosts(form, &uri);
    } else {
        check_refusal(&err);
        check(uri.buffer == NULL);
    }
    shed_uri_fini(&uri);
}

/* Nobody is asked for the address of a host: it would take time, and names of
 * the fuzzer's would be sent around. */
int __wrap_getaddrinfo(const char *host, const char *port,
                       const struct addrinfo *hints, struct addrinfo **out);

int __wrap_getaddrinfo(const char *host, const char *port,
                       const struct addrinfo *hints, struct addrinfo **out)
{
    (void)hints;
    (void)out;
    check(*host != '\0' && *port != '\0');
    return EAI_AGAIN;
}

static void parse_redis(const char *text)
{
    struct shed_address *address = NULL;
    struct shed_error err = {0};

    if (shed_address_create(text, &address, &err) == SHED_OK) {
        check(address->text[0] != '\0' &&
              strspn(address->db, "0123456789") == strlen(address->db));
        check(address->user == NULL || address->password != NULL);
        /* a cluster is asked where it is by others */
        if (address->seeds != NULL)
            check(address->host == NULL && !shed_address_is_known(address));
        else
            check((address->host == NULL) == shed_address_is_known(address));
    } else {
        check_refusal(&err);
        check(address == NULL);
    }
    shed_address_unref(address);
}

static void parse_mysql(const char *text)
{
    struct shed_mysql_uri uri;
    struct shed_error err = {0};

    if (shed_mysql_uri_parse(text, &uri, &err) == SHED_OK) {
        check(uri.database[0] != '\0' && uri.port > 0 && uri.port <= 65535);
        check((uri.host == NULL) != (uri.socket == NULL));
        check(uri.user == NULL || uri.user[0] != '\0');
    } else {
        check_refusal(&err);
        check(uri.parts.buffer == NULL);
    }
    shed_mysql_uri_fini(&uri);
}

/* What the first byte chooses: how the text begins, and who reads it. */
static const struct {
    const char *begin;
    const struct shed_uri_form *form;
    void (*parse)(const char *text);
} choices[] = {
    {"", &forms[0], NULL},        {"", &forms[1], NULL},
    {"", &forms[2], NULL},        {"redis://", NULL, parse_redis},
    {"unix:", NULL, parse_redis}, {"mysql://", NULL, parse_mysql},
    {"", NULL, parse_redis},      {"", NULL, parse_mysql},
};

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    size_t choice, begin_size;
    char *text;

    if (size == 0)
        return 0;
    choice = *bytes % (sizeof(choices) / sizeof(*choices));
    begin_size = strlen(choices[choice].begin);
    text = malloc(begin_size + size);
    check(text != NULL);
    memcpy(text, choices[choice].begin, begin_size);
    memcpy(text + begin_size, bytes + 1, size - 1);
    text[begin_size + size - 1] = '\0';
    if (choices[choice].form != NULL)
        parse_form(choices[choice].form, text);
    else
        choices[choice].parse(text);
    free(text);
    return 0;
}
