/* Bytes, times and sizes as texts. */
#include "cli/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/cli.h"

#define MS_PER_S 1000
#define HEX_BASE 16
#define COLUMNS 80

void cli_print_escaped(FILE *out, const void *bytes, size_t size, size_t limit)
{
    char *text = cli_escape(bytes, size < limit ? size : limit);

    (void)fprintf(out, "%s%s", text, size > limit ? "..." : "");
    free(text);
}

void cli_print_wrapped(const char *text, size_t column, size_t indent)
{
    for (const char *at = text; *at != '\0';) {
        size_t size = strcspn(at, " ");
        if (at != text && column + 1 + size > COLUMNS) {
            printf("\n%*s", (int)indent, "");
            column = indent;
        } else if (at != text) {
            (void)putchar(' ');
            column++;
        }
        printf("%.*s", (int)size, at);
        column += size;
        at += size + strspn(at + size, " ");
    }
    (void)putchar('\n');
}

char *cli_escape(const void *bytes, size_t size)
{
    struct shed_bytes all = shed_bytes(bytes, size);
    size_t room = shed_escape(all, NULL, 0) + 1;
    char *text = cli_alloc(room, 1);

    (void)shed_escape(all, text, room);
    return text;
}

char *cli_word(const void *bytes, size_t size)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyz"
        "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:@%+,=-";
    char *text = cli_escape(bytes, size), *word, *at;

    if (text[0] != '-' && text[strspn(text, plain)] == '\0')
        return text;
    at = word = cli_alloc(strlen(text) + 1, sizeof("\\xNN"));
    *at++ = '\'';
    for (const char *c = text; *c != '\0'; c++)
        if (*c == '\'' || (*c == '-' && c == text)) /* no option, either */
            at += sprintf(at, "\\x%02x", (unsigned)*c);
        else
            *at++ = *c;
    *at = '\'';
    free(text);
    return word;
}

size_t cli_unescape(char *text)
{
    char *to = text;

    for (const char *c = text; *c != '\0'; c++) {
        char digits[3] = {0}, *end;
        if (*c != '\\') {
            *to++ = *c;
            continue;
        }
        c++;
        if (*c == '\\') {
            *to++ = '\\';
            continue;
        }
        if (*c != 'x' || c[1] == '\0' || c[2] == '\0')
            return SIZE_MAX;
        memcpy(digits, c + 1, 2);
        if (strspn(digits, "0123456789abcdefABCDEF") != 2)
            return SIZE_MAX;
        *to++ = (char)strtoul(digits, &end, HEX_BASE);
        c += 2;
    }
    return (size_t)(to - text);
}

static char *encode_base64(const unsigned char *b, size_t size)
{
    static const char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *text = cli_alloc((size + 2) / 3 * 4 + 1, 1), *at = text;

    for (size_t i = 0; i < size; i += 3) {
        size_t left = size - i;
        unsigned tag = (unsigned)b[i] << 16;
        tag |= left > 1 ? (unsigned)b[i + 1] << 8 : 0;
        tag |= left > 2 ? (unsigned)b[i + 2] : 0;
        *at++ = digits[tag >> 18];
        *at++ = digits[tag >> 12 & 63];
        *at++ = left > 1 ? digits[tag >> 6 & 63] : '=';
        *at++ = left > 2 ? digits[tag & 63] : '=';
    }
    *at = '\0';
    return text;
}

void cli_json_set_bytes(json_t *object, const char *name, const void *bytes,
                        size_t size)
{
    const void *at = bytes != NULL ? bytes : "";
    json_t *string = json_stringn(at, size);
    char longer[64], *text;

    if (string != NULL) {
        json_object_set_new(object, name, string);
        return;
    }
    (void)snprintf(longer, sizeof(longer), "%s_base64", name);
    text = encode_base64(at, size);
    json_object_set_new(object, longer, json_string(text));
    free(text);
}

json_t *cli_json_ms(long long ms)
{
    return ms < 0 ? json_null() : json_integer(ms);
}

const char *cli_duration(char text[CLI_TEXT_BYTES], uint64_t ms)
{
    uint64_t s = ms / MS_PER_S;

    if (ms < MS_PER_S)
        (void)snprintf(text, CLI_TEXT_BYTES, "%" PRIu64 " ms", ms);
    else if (s < 60)
        (void)snprintf(text, CLI_TEXT_BYTES, "%" PRIu64 ".%" PRIu64 " s", s,
                       ms % MS_PER_S / 100);
    else if (s < 3600)
        (void)snprintf(text, CLI_TEXT_BYTES, "%" PRIu64 " min %" PRIu64 " s",
                       s / 60, s % 60);
    else if (s < 86400)
        (void)snprintf(text, CLI_TEXT_BYTES, "%" PRIu64 " h %" PRIu64 " min",
                       s / 3600, s / 60 % 60);
    else
        (void)snprintf(text, CLI_TEXT_BYTES, "%" PRIu64 " d %" PRIu64 " h",
                       s / 86400, s / 3600 % 24);
    return text;
}

const char *cli_size(char text[CLI_TEXT_BYTES], uint64_t bytes)
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes / 1024;
    size_t unit = 0;

    if (bytes < 1024) {
        (void)snprintf(text, CLI_TEXT_BYTES, "%" PRIu64 " bytes", bytes);
        return text;
    }
    while (value >= 1024 && unit + 1 < sizeof(units) / sizeof(*units)) {
        value /= 1024;
        unit++;
    }
    (void)snprintf(text, CLI_TEXT_BYTES, "%.1f %s", value, units[unit]);
    return text;
}

/* The number may come from a damaged or hostile header, and be no date. */
const char *cli_date(char text[CLI_TEXT_BYTES], uint64_t ms)
{
    const uint64_t latest_ms = 253402300799999; /* the end of the year 9999 */
    time_t s = (time_t)(ms / MS_PER_S);
    char second[32];
    struct tm tm;

    if (ms > latest_ms || gmtime_r(&s, &tm) == NULL ||
        strftime(second, sizeof(second), "%Y-%m-%d %H:%M:%S", &tm) == 0)
        (void)snprintf(text, CLI_TEXT_BYTES, "%" PRIu64 " ms", ms);
    else
        (void)snprintf(text, CLI_TEXT_BYTES, "%s.%03u UTC", second,
                       (unsigned)(ms % MS_PER_S));
    return text;
}

const char *cli_hex(char *text, const unsigned char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        (void)snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    return text;
}
