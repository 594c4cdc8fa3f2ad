/*
 * Reason texts, and checks of arguments. Its one invariant: a struct shed_error
 * that was set is one terminated line, and errno is unchanged.
 */
#include "base/error.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* No options struct of any version is longer: a size beyond it is garbage. */
#define OPTIONS_MAX_BYTES ((size_t)4096)

#define TEXT(number) #number
#define VERSION(major, minor, patch) TEXT(major) "." TEXT(minor) "." TEXT(patch)

const char *shed_version(void)
{
    return VERSION(SHED_VERSION_MAJOR, SHED_VERSION_MINOR, SHED_VERSION_PATCH);
}

/* Replace control characters, also those of two bytes (U+0080 to U+009F): a
 * reason is one line for people and logs, but servers, sources and, by failure
 * markers, other processes write parts of it. */
static void make_printable(char *text)
{
    enum { DELETE = 0x7f, C1_LEAD = 0xc2, C1_FIRST = 0x80, C1_LAST = 0x9f };
    unsigned char *at = (unsigned char *)text;

    for (; *at != '\0'; at++) {
        bool is_pair = *at == C1_LEAD && at[1] >= C1_FIRST && at[1] <= C1_LAST;
        if (is_pair)
            *at++ = '?';
        if (is_pair || *at < ' ' || *at == DELETE)
            *at = '?';
    }
}

void shed_error_set(struct shed_error *err, enum shed_code code,
                    const char *format, ...)
{
    /* A copy, because an argument may be the reason that is replaced. */
    char reason[SHED_REASON_BYTES] = "";
    int saved_errno = errno;
    va_list args;

    if (err == NULL)
        return;
    va_start(args, format);
    if (vsnprintf(reason, sizeof(reason), format, args) < 0)
        reason[0] = '\0';
    va_end(args);
    make_printable(reason);
    err->code = code;
    memcpy(err->reason, reason, sizeof(reason));
    errno = saved_errno;
}

const char *shed_errno_text(int number)
{
    static _Thread_local char text[64];

    if (strerror_r(number, text, sizeof(text)) != 0)
        (void)snprintf(text, sizeof(text), "errno %d", number);
    return text;
}

static bool is_zero(const unsigned char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (bytes[i] != 0)
            return false;
    return true;
}

struct shed_error *shed_error_keep(const struct shed_error *error)
{
    struct shed_error *kept = malloc(sizeof(*kept));

    if (kept != NULL)
        *kept = *error;
    return kept;
}

const char *shed_error_kept(const struct shed_error *kept)
{
    return kept != NULL ? kept->reason
                        : "out of memory for the reason of the failure";
}

enum shed_code shed_options_take(void *out, size_t out_size, const void *given,
                                 const char *what, struct shed_error *err)
{
    size_t size;

    if (given == NULL)
        return SHED_OK;
    memcpy(&size, given, sizeof(size));
    /* A size that no initialiser would write means that the struct was not
     * initialised and its bytes are garbage. The largest struct of a future
     * version is well below the limit. */
    if (size <= sizeof(size) || size % sizeof(size) != 0 ||
        size > OPTIONS_MAX_BYTES)
        return shed_fail(err, SHED_EINVAL,
                         "%s: size is %zu: fill it with its initialiser", what,
                         size);
    if (size > out_size &&
        !is_zero((const unsigned char *)given + out_size, size - out_size))
        return shed_fail(err, SHED_EINVAL,
                         "%s: sets an option that this library does not know: "
                         "the library is older than the program",
                         what);
    memcpy((unsigned char *)out + sizeof(size),
           (const unsigned char *)given + sizeof(size),
           (size < out_size ? size : out_size) - sizeof(size));
    return SHED_OK;
}

enum shed_code shed_check_range(uint64_t value, uint64_t lo, uint64_t hi,
                                const char *what, struct shed_error *err)
{
    if (value >= lo && value <= hi)
        return SHED_OK;
    return shed_fail(err, SHED_EINVAL,
                     "%s is %" PRIu64 ", must be in [%" PRIu64 ", %" PRIu64 "]",
                     what, value, lo, hi);
}

enum shed_code shed_check_ranges(const struct shed_range *ranges, size_t count,
                                 struct shed_error *err)
{
    enum shed_code code = SHED_OK;

    for (size_t i = 0; i < count && code == SHED_OK; i++)
        code = shed_check_range(ranges[i].value, ranges[i].lo, ranges[i].hi,
                                ranges[i].what, err);
    return code;
}
