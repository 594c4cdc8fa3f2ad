/* Text to the standard output, members into a JSON object. */
#include "cli/out.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>

#include <openssl/evp.h>

static json_t *check(json_t *value)
{
    if (value == NULL)
        cli_fail_nomem();
    return value;
}

json_t *cli_out_open(const struct cli_call *call)
{
    return call->is_json ? check(json_object()) : NULL;
}

void cli_out_close(const struct cli_call *call, json_t *out)
{
    size_t form = out == call->out ? JSON_INDENT(2) : JSON_COMPACT;

    if (json_object_size(out) > 0) {
        if (json_dumpf(out, stdout, form | JSON_ENSURE_ASCII) != 0)
            cli_fail_nomem();
        (void)putchar('\n');
    }
    json_decref(out);
    cli_flush(call);
}

/* -------------------------------------------------------------------- text */

void cli_out_print(const json_t *out, const char *format, ...)
{
    va_list list;

    if (out != NULL)
        return;
    va_start(list, format);
    (void)vprintf(format, list);
    va_end(list);
}

void cli_out_line(const json_t *out, const char *name, const char *format, ...)
{
    va_list list;

    if (out != NULL)
        return;
    printf("  %-10s ", name);
    va_start(list, format);
    (void)vprintf(format, list);
    va_end(list);
    (void)putchar('\n');
}

void cli_out_line_bytes(const json_t *out, const char *name,
                        struct shed_bytes bytes, size_t limit)
{
    bool is_cut = bytes.size > limit;

    bytes.size = is_cut ? limit : bytes.size;
    cli_out_line(out, name, "%s%s", cli_escape(bytes).at, is_cut ? "..." : "");
}

/* ----------------------------------------------------------------- members */

void cli_out_set(json_t *out, const char *name, json_t *value)
{
    if (out == NULL)
        json_decref(value);
    else if (json_object_set_new(out, name, value) != 0)
        cli_fail_nomem();
}

void cli_out_number(json_t *out, const char *name, uint64_t number)
{
    cli_out_set(out, name, json_integer((json_int_t)number));
}

void cli_out_flag(json_t *out, const char *name, bool flag)
{
    cli_out_set(out, name, json_boolean(flag));
}

void cli_out_count(json_t *out, const char *name, uint64_t number,
                   const char *counted)
{
    if (number > 0)
        cli_out_print(out, "%" PRIu64 " %s\n", number, counted);
    cli_out_number(out, name, number);
}

void cli_out_text(json_t *out, const char *name, const char *text)
{
    cli_out_set(out, name, text != NULL ? json_string(text) : json_null());
}

void cli_out_maybe(json_t *out, const char *name, bool is_known,
                   long long number)
{
    cli_out_set(out, name, is_known ? json_integer(number) : json_null());
}

void cli_out_ms(json_t *out, const char *name, long long ms)
{
    cli_out_maybe(out, name, ms >= 0, ms);
}

void cli_out_bytes(json_t *out, const char *name, struct shed_bytes bytes)
{
    const void *at = bytes.data != NULL ? bytes.data : "";
    json_t *string = out != NULL ? json_stringn(at, bytes.size) : NULL;
    char *text;

    if (string != NULL || out == NULL) {
        cli_out_set(out, name, string);
        return;
    }
    text = cli_alloc((bytes.size + 2) / 3 * 4 + 1, 1);
    (void)EVP_EncodeBlock((unsigned char *)text, at, (int)bytes.size);
    cli_out_text(out, cli_format("%s_base64", name).at, text);
    free(text);
}

json_t *cli_out_object(json_t *out, const char *name)
{
    json_t *object = out != NULL ? check(json_object()) : NULL;

    cli_out_set(out, name, object);
    return object;
}

json_t *cli_out_list(json_t *out, const char *name)
{
    json_t *list = out != NULL ? check(json_array()) : NULL;

    cli_out_set(out, name, list);
    return list;
}

json_t *cli_out_item(json_t *list)
{
    json_t *object = list != NULL ? check(json_object()) : NULL;

    if (list != NULL && json_array_append_new(list, object) != 0)
        cli_fail_nomem();
    return object;
}
