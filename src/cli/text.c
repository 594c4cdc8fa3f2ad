/* Bytes, times and sizes as texts. */
#include "cli/text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MS_PER_S 1000
#define HEX_BASE 16
#define HEX_DIGITS "0123456789abcdefABCDEF"
#define COLUMNS 80

struct cli_text cli_format(const char *format, ...)
{
    struct cli_text text;
    va_list list;

    va_start(list, format);
    /* clang-tidy 14 does not follow va_start into calls from this file */
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized) */
    (void)vsnprintf(text.at, sizeof(text.at), format, list);
    va_end(list);
    return text;
}

bool cli_begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

bool cli_are_same(struct shed_bytes a, struct shed_bytes b)
{
    return a.data != NULL && b.data != NULL && a.size == b.size &&
           memcmp(a.data, b.data, a.size) == 0;
}

void cli_print_wrapped(const char *text, size_t begin)
{
    size_t column = begin;

    for (const char *at = text; *at != '\0';) {
        size_t size = strcspn(at, " ");
        if (at != text && column + 1 + size > COLUMNS) {
            printf("\n%*s", (int)begin, "");
            column = begin;
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

struct cli_text cli_escape(struct shed_bytes bytes)
{
    struct cli_text text;

    (void)shed_escape(bytes, text.at, sizeof(text.at));
    return text;
}

struct cli_text cli_word(const char *escaped)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyz"
        "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:@%+,=-";
    struct cli_text word;
    char *at = word.at, *end = at + sizeof(word.at) - sizeof("\\xNN'");

    if (escaped[0] != '-' && escaped[strspn(escaped, plain)] == '\0')
        return cli_format("%s", escaped);
    *at++ = '\'';
    for (const char *c = escaped; *c != '\0' && at < end; c++)
        if (*c == '\'' || (*c == '-' && c == escaped)) /* no option, either */
            at += sprintf(at, "\\x%02x", (unsigned)*c);
        else
            *at++ = *c;
    memcpy(at, "'", sizeof("'"));
    return word;
}

size_t cli_unescape(char *text)
{
    char *to = text;

    for (const char *c = text; *c != '\0'; c++) {
        if (*c != '\\') {
            *to++ = *c;
        } else if (c[1] == '\\') {
            *to++ = *c++;
        } else if (c[1] == 'x' && strspn(c + 2, HEX_DIGITS) >= 2) {
            const char digits[] = {c[2], c[3], '\0'};
            *to++ = (char)strtoul(digits, NULL, HEX_BASE);
            c += 3;
        } else {
            return SIZE_MAX;
        }
    }
    return (size_t)(to - text);
}

struct cli_text cli_duration(uint64_t ms)
{
    static const struct {
        uint64_t s;
        const char *name;
    } units[] = {{86400, "d"}, {3600, "h"}, {60, "min"}, {1, "s"}};
    uint64_t s = ms / MS_PER_S;

    for (size_t i = 0; i + 1 < sizeof(units) / sizeof(*units); i++)
        if (s >= units[i].s)
            return cli_format("%" PRIu64 " %s %" PRIu64 " %s", s / units[i].s,
                              units[i].name, s % units[i].s / units[i + 1].s,
                              units[i + 1].name);
    return s > 0
               ? cli_format("%" PRIu64 ".%" PRIu64 " s", s, ms % MS_PER_S / 100)
               : cli_format("%" PRIu64 " ms", ms);
}

struct cli_text cli_size(uint64_t bytes)
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes / 1024;
    size_t unit = 0;

    while (value >= 1024 && unit + 1 < sizeof(units) / sizeof(*units)) {
        value /= 1024;
        unit++;
    }
    return bytes < 1024 ? cli_format("%" PRIu64 " bytes", bytes)
                        : cli_format("%.1f %s", value, units[unit]);
}

/* The number may come from a damaged or hostile header, and be no date. */
struct cli_text cli_date(uint64_t ms)
{
    const uint64_t latest_ms = 253402300799999; /* the end of the year 9999 */
    time_t s = (time_t)(ms / MS_PER_S);
    char second[32];
    struct tm tm;

    if (ms > latest_ms || gmtime_r(&s, &tm) == NULL ||
        strftime(second, sizeof(second), "%Y-%m-%d %H:%M:%S", &tm) == 0)
        return cli_format("%" PRIu64 " ms", ms);
    return cli_format("%s.%03u UTC", second, (unsigned)(ms % MS_PER_S));
}

struct cli_text cli_hex(const unsigned char *bytes, size_t size)
{
    struct cli_text text = {""};

    for (size_t i = 0; i < size; i++)
        (void)snprintf(text.at + 2 * i, 3, "%02x", bytes[i]);
    return text;
}
