/*
 * Any bytes as a URI: parse reads nothing outside them, the parts are texts
 * without a zero byte in the copy that fini wipes, and no reason quotes a
 * password. The first byte chooses the form.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/uri.h"

/* The text always begins with the form's scheme. */
static const struct shed_uri_form forms[] = {
    {"URI", "x:", "?", true, "database", "socket", "socket"},
    {"URI", "x:", "", true, "database", NULL, "none"},
    {"URI", "x:", "/", false, "path", "db", "db"},
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
    check_part(uri, uri->host);
    check_part(uri, uri->path);
    check_part(uri, uri->parameter);
    check((uri->host.text != NULL) == form->has_host);
    check(uri->port == 0 || uri->host.size > 0);
    check(uri->parameter.text == NULL || form->parameter != NULL);
    check(uri->password.text == NULL || uri->user.text != NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    const struct shed_uri_form *form;
    struct shed_error err = {0};
    struct shed_uri uri;
    char *text;

    if (size == 0)
        return 0;
    form = &forms[*bytes % (sizeof(forms) / sizeof(*forms))];
    text = malloc(size + sizeof("x:"));
    check(text != NULL);
    memcpy(text, "x:", 2);
    memcpy(text + 2, bytes + 1, size - 1);
    text[size + 1] = '\0';
    if (shed_uri_parse(form, text, &uri, &err) == SHED_OK)
        check_parts(form, &uri);
    else
        check(err.code == SHED_EINVAL && uri.buffer == NULL &&
              strstr(err.reason, "cret") == NULL);
    shed_uri_fini(&uri);
    free(text);
    return 0;
}
