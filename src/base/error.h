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

/* The same when memory is out; what says for what. */
#define shed_fail_nomem(err, what)                                             \
    shed_fail(err, SHED_ENOMEM, "out of memory for %s", what)

/* Check an options struct that the caller gave: NULL stands for the defaults,
 * a larger one than ours must be zero beyond what we know, a smaller one gets
 * our defaults behind its end. out holds the defaults on entry. what names the
 * struct in the reason. The structs begin with their size. */
SHED_MUST_CHECK enum shed_code shed_options_take(void *out, size_t out_size,
                                                 const void *given,
                                                 const char *what,
                                                 struct shed_error *err);

/* See that an options struct begins with its size, and that any field more
 * makes it larger, instead of filling padding at its end. */
#define SHED_CHECK_OPTIONS(type)                                               \
    _Static_assert(offsetof(struct type, size) == 0 &&                         \
                       sizeof(struct type) % sizeof(uint64_t) == 0,            \
                   "struct " #type " tells its version by its size")

/* Check lo <= value <= hi; what names the field in the reason. */
SHED_MUST_CHECK enum shed_code shed_check_range(uint64_t value, uint64_t lo,
                                                uint64_t hi, const char *what,
                                                struct shed_error *err);

/* The same for several; the first that is wrong is the answer. */
struct shed_range {
    uint64_t value, lo, hi;
    const char *what;
};
SHED_MUST_CHECK enum shed_code
shed_check_ranges(const struct shed_range *ranges, size_t count,
                  struct shed_error *err);

#endif
