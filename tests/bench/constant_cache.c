/*
 * A shed_get and a shed_get_async that answer with a constant, for a build of
 * demo/hotitems in which the linker replaces the library's (--wrap). Everything
 * else is the same, so what remains is the cost of HTTP and JSON.
 */
#include <pthread.h>
#include <string.h>

#include <snowshed/async.h>

#include "base/value.h"

/* As long as the rows that hotitems' query makes. */
static const char row[] = "{\"name\": \"Chair no. 1\", \"price_cents\": 8019, "
                          "\"stock\": 229}";

static struct shed_value *constant;
static pthread_once_t is_made = PTHREAD_ONCE_INIT;

static void make(void)
{
    constant = shed_value_create(SHED_KIND_ROW, SHED_ORIGIN_REDIS, row,
                                 sizeof(row) - 1);
}

enum shed_code __wrap_shed_get(struct shed_cache *cache, struct shed_bytes key,
                               const struct shed_get_options *options,
                               struct shed_value **out, struct shed_error *err);

enum shed_code __wrap_shed_get(struct shed_cache *cache, struct shed_bytes key,
                               const struct shed_get_options *options,
                               struct shed_value **out, struct shed_error *err)
{
    (void)cache;
    (void)key;
    (void)options;
    (void)err;
    (void)pthread_once(&is_made, make);
    if (constant == NULL)
        return SHED_ENOMEM;
    *out = shed_value_ref(constant);
    return SHED_OK;
}

enum shed_code
__wrap_shed_get_async(struct shed_cache *cache, struct shed_bytes key,
                      const struct shed_get_options *options,
                      const struct shed_then *then, struct shed_value **near,
                      struct shed_pending **pending, struct shed_error *err);

/* As if the row were near. */
enum shed_code
__wrap_shed_get_async(struct shed_cache *cache, struct shed_bytes key,
                      const struct shed_get_options *options,
                      const struct shed_then *then, struct shed_value **near,
                      struct shed_pending **pending, struct shed_error *err)
{
    (void)then;
    (void)pending;
    return __wrap_shed_get(cache, key, options, near, err);
}
