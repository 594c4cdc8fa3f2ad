/* Reason texts: the one place that writes a struct shed_error. */
#ifndef SHED_ERROR_H
#define SHED_ERROR_H

#include <snowshed/snowshed.h>

/* Set err (which may be NULL); the text is cut to fit. errno is left as it
 * was. */
__attribute__((format(printf, 3, 4))) void
shed_error_set(struct shed_error *err, enum shed_code code, const char *format,
               ...);

/* The same as an expression whose value is code, so that a failure is one
 * statement:
 * return shed_fail(err, SHED_EINVAL, "..."). A macro, because compilers and
 * analyzers then see that what fails does not return SHED_OK. */
#define shed_fail(err, code, ...)                                              \
    (shed_error_set(err, code, __VA_ARGS__), (enum shed_code)(code))

/* The same when out of memory; what names the thing that needed it. */
#define shed_fail_nomem(err, what)                                             \
    shed_fail(err, SHED_ENOMEM, "out of memory for %s", what)

/* The text of an errno; the thread's next call overwrites it. */
const char *shed_errno_text(int number);

/* A copy of a failure, for free(), so that what has not failed needs no room
 * for it. Returns: NULL when out of memory. */
struct shed_error *shed_error_keep(const struct shed_error *error);

/* The reason in such a copy, or, with NULL, that memory was out for it. */
const char *shed_error_kept(const struct shed_error *kept);

/* Check an options struct of the caller's, which begins with its size. NULL
 * means the defaults. One that is larger than ours must be zero beyond what we
 * know; one that is smaller gets our defaults behind its end. On entry out
 * holds the defaults. what names the struct in the reason. */
SHED_MUST_CHECK enum shed_code shed_options_take(void *out, size_t out_size,
                                                 const void *given,
                                                 const char *what,
                                                 struct shed_error *err);

/* Check that an options struct begins with its size, and that every new field
 * will make it larger, instead of filling padding at its end. */
#define SHED_CHECK_OPTIONS(type)                                               \
    _Static_assert(offsetof(struct type, size) == 0 &&                         \
                       sizeof(struct type) % sizeof(uint64_t) == 0,            \
                   "struct " #type " tells its version by its size")

/* Check that lo <= value <= hi; what names the field in the reason. */
SHED_MUST_CHECK enum shed_code shed_check_range(uint64_t value, uint64_t lo,
                                                uint64_t hi, const char *what,
                                                struct shed_error *err);

/* The same for several values; the first wrong one is reported. */
struct shed_range {
    uint64_t value, lo, hi;
    const char *what;
};
SHED_MUST_CHECK enum shed_code
shed_check_ranges(const struct shed_range *ranges, size_t count,
                  struct shed_error *err);

#endif
