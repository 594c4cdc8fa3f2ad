/* Members of a JSON object, and the text that is made of them. */
#include "cli/out.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/evp.h>

/* Do not flood a terminal with a payload of megabytes. */
#define SHOWN_BYTES 1024

/* From here on a number of ms is a date: the year 2001. */
#define DATES_FROM_MS 1000000000000

#define INDENT 2
#define COLUMNS_MAX 16

/* Whether members are made for JSON. In a text, bytes are escaped. */
static bool is_json;

/* ----------------------------------------------------------------- members */

static json_t *check(json_t *value)
{
    if (value == NULL)
        cli_fail_nomem();
    return value;
}

json_t *cli_out_begin(const struct cli_call *call)
{
    is_json = call->is_json;
    return cli_out_open();
}

json_t *cli_out_open(void)
{
    return check(json_object());
}

void cli_out_set(json_t *out, const char *name, json_t *value)
{
    if (json_object_set_new(out, name, value) != 0)
        cli_fail_nomem();
}

void cli_out_number(json_t *out, const char *name, uint64_t number)
{
    if (number <= INT64_MAX)
        cli_out_set(out, name, json_integer((json_int_t)number));
    else /* jansson has no such numbers */
        cli_out_text(out, name, cli_format("%" PRIu64, number).at);
}

void cli_out_flag(json_t *out, const char *name, bool flag)
{
    cli_out_set(out, name, json_boolean(flag));
}

void cli_out_maybe(json_t *out, const char *name, bool is_known,
                   long long number)
{
    cli_out_set(out, name, is_known ? json_integer(number) : json_null());
}

static json_t *escape(struct shed_bytes bytes)
{
    bool is_cut = bytes.size > SHOWN_BYTES;

    bytes.size = is_cut ? SHOWN_BYTES : bytes.size;
    return json_string(
        cli_format("%s%s", cli_escape(bytes).at, is_cut ? "..." : "").at);
}

void cli_out_bytes(json_t *out, const char *name, struct shed_bytes bytes)
{
    const void *at = bytes.data != NULL ? bytes.data : "";
    json_t *string = is_json ? json_stringn(at, bytes.size) : escape(bytes);
    char *text;

    if (string != NULL) {
        cli_out_set(out, name, string);
        return;
    }
    text = cli_alloc((bytes.size + 2) / 3 * 4 + 1, 1);
    (void)EVP_EncodeBlock((unsigned char *)text, at, (int)bytes.size);
    cli_out_set(out, cli_format("%s_base64", name).at, json_string(text));
    free(text);
}

void cli_out_text(json_t *out, const char *name, const char *text)
{
    if (text == NULL)
        cli_out_set(out, name, json_null());
    else
        cli_out_bytes(out, name, shed_str(text));
}

json_t *cli_out_object(json_t *out, const char *name)
{
    json_t *object = cli_out_open();

    cli_out_set(out, name, object);
    return object;
}

json_t *cli_out_list(json_t *out, const char *name)
{
    json_t *list = check(json_array());

    cli_out_set(out, name, list);
    return list;
}

json_t *cli_out_item(json_t *list)
{
    json_t *object = cli_out_open();

    if (json_array_append_new(list, object) != 0)
        cli_fail_nomem();
    return object;
}

void cli_out_hint(json_t *out, const char *text)
{
    json_t *hints = json_object_get(out, "hints");

    if (hints == NULL)
        hints = cli_out_list(out, "hints");
    if (json_array_append_new(hints, json_string(text)) != 0)
        cli_fail_nomem();
}

/* -------------------------------------------------------------------- text */

static bool ends(const char *name, const char *with)
{
    size_t size = strlen(name), end = strlen(with);

    return size >= end && strcmp(name + size - end, with) == 0;
}

/* What a line or a column is called. */
static struct cli_text label(const char *name)
{
    size_t size = strlen(name);
    struct cli_text text;

    if (ends(name, "_ms"))
        size -= strlen("_ms");
    if (cli_begins(name, "is_") || cli_begins(name, "has_")) {
        size_t prefix = strcspn(name, "_") + 1;
        name += prefix;
        size -= prefix;
    }
    text = cli_format("%.*s", (int)size, name);
    for (char *c = text.at; *c != '\0'; c++)
        *c = *c == '_' ? ' ' : *c;
    return text;
}

static struct cli_text value_text(const char *name, const json_t *value)
{
    uint64_t number = (uint64_t)json_integer_value(value);

    if (json_is_string(value))
        return cli_format("%s", json_string_value(value));
    if (json_is_boolean(value))
        return cli_format("%s", json_is_true(value) ? "yes" : "no");
    if (json_is_real(value))
        return cli_format("%.2f", json_real_value(value));
    if (!json_is_integer(value))
        return cli_format("-");
    if (ends(name, "_ms"))
        return number >= DATES_FROM_MS ? cli_date(number)
                                       : cli_duration(number);
    if (strcmp(name, "bytes") == 0 || strcmp(name, "size") == 0)
        return cli_size(number);
    return cli_format("%lld", (long long)number);
}

static struct cli_text cell(const json_t *item, const char *column)
{
    const json_t *value = json_object_get(item, column);

    return json_is_string(value) ? cli_word(json_string_value(value))
                                 : value_text(column, value);
}

/* Columns for the members of the first object. */
static void print_table(json_t *list, int indent)
{
    struct {
        const char *name;
        int width;
    } column[COLUMNS_MAX];
    size_t count = 0;
    const char *name;
    json_t *value;

    json_object_foreach(json_array_get(list, 0), name, value)
    {
        int width = (int)strlen(label(name).at);
        for (size_t i = 0; i < json_array_size(list); i++) {
            int size = (int)strlen(cell(json_array_get(list, i), name).at);
            width = size > width ? size : width;
        }
        if (count < COLUMNS_MAX) {
            column[count].name = name;
            column[count++].width = width;
        }
    }
    for (size_t i = 0; i <= json_array_size(list); i++) {
        json_t *item = i > 0 ? json_array_get(list, i - 1) : NULL;
        printf("%*s", indent, "");
        for (size_t c = 0; c < count; c++)
            printf("%-*s%s", c + 1 < count ? column[c].width : 0,
                   item != NULL ? cell(item, column[c].name).at
                                : label(column[c].name).at,
                   c + 1 < count ? "  " : "\n");
    }
}

static void print_list(json_t *list, int indent)
{
    size_t i;
    json_t *text;

    if (json_is_object(json_array_get(list, 0))) {
        print_table(list, indent);
        return;
    }
    json_array_foreach(list, i, text)
    {
        printf("%*s", indent, "");
        cli_print_wrapped(json_string_value(text), (size_t)indent);
    }
}

static void print_object(json_t *object, int indent)
{
    int width = 0;
    const char *name;
    json_t *value;

    json_object_foreach(object, name, value)
    {
        int size = (int)strlen(label(name).at);
        width = size > width ? size : width;
    }
    json_object_foreach(object, name, value)
    {
        bool is_large = json_is_object(value) || json_is_array(value);
        if (json_is_null(value) ||
            (json_is_array(value) && json_array_size(value) == 0))
            continue;
        printf("%*s%-*s%s", indent, "", is_large ? 0 : width, label(name).at,
               is_large ? "\n" : "  ");
        if (json_is_object(value))
            print_object(value, indent + INDENT);
        else if (json_is_array(value))
            print_list(value, indent + INDENT);
        else if (strcmp(name, "text") == 0)
            cli_print_wrapped(json_string_value(value),
                              (size_t)(indent + width) + INDENT);
        else
            printf("%s\n", value_text(name, value).at);
    }
}

/* End the program if the output cannot be written. */
static void flush(void)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return;
    if (errno != EPIPE) /* a reader that has closed the pipe knows it */
        (void)fputs("snowshed: the output cannot be written\n", stderr);
    exit(CLI_FAILED);
}

void cli_out_close(const struct cli_call *call, json_t *out)
{
    size_t form = out == call->out ? JSON_INDENT(2) : JSON_COMPACT;

    if (json_object_size(out) > 0 && is_json) {
        if (json_dumpf(out, stdout, form | JSON_ENSURE_ASCII) != 0)
            cli_fail_nomem();
        (void)putchar('\n');
    } else {
        print_object(out, 0);
    }
    json_decref(out);
    flush();
}
