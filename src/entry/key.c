/* The names of keys in Redis. */
#include "entry/key.h"

#include <assert.h>
#include <string.h>

#include "base/error.h"

enum shed_code shed_key_check_cache_name(const char *name, const char *what,
                                         struct shed_error *err)
{
    size_t size = name != NULL ? strnlen(name, SHED_NAME_MAX_BYTES + 1) : 0;

    if (name == NULL)
        return shed_fail(err, SHED_EINVAL, "%s is NULL", what);
    if (size == 0)
        return shed_fail(err, SHED_EINVAL, "%s is empty", what);
    if (size > SHED_NAME_MAX_BYTES)
        return shed_fail(err, SHED_EINVAL, "%s is longer than %d bytes", what,
                         SHED_NAME_MAX_BYTES);
    for (size_t i = 0; i < size; i++) {
        if (name[i] == '{' || name[i] == '}')
            return shed_fail(err, SHED_EINVAL,
                             "%s has a brace at byte %zu: braces "
                             "are reserved, they mark the key in Redis",
                             what, i);
        if (name[i] <= ' ' || name[i] > '~')
            return shed_fail(err, SHED_EINVAL,
                             "%s: byte %zu is a space or not printable ASCII",
                             what, i);
    }
    /* its entries would have the keys of locks, and overwrite them */
    if (strcmp(name, "lock") == 0)
        return shed_fail(err, SHED_EINVAL,
                         "%s \"lock\" is reserved, because the keys "
                         "of locks begin with it: choose another name",
                         what);
    return SHED_OK;
}

/* The braces keep an entry and its side keys on one node of a cluster: only the
 * bytes between them are hashed, unless there are none. So a KEY that begins
 * with a closing brace is escaped, and so is one that begins with the escape.
 */
void shed_key_name(const char *cache_name, struct shed_bytes key,
                   struct shed_named_key *out)
{
    char first = *(const char *)key.data;
    char *at = out->bytes;
    size_t name_size = strnlen(cache_name, SHED_NAME_MAX_BYTES);

    assert(key.size > 0 && key.size <= SHED_KEY_MAX_BYTES);
    memcpy(at, cache_name, name_size);
    at += name_size;
    *at++ = ':';
    *at++ = '{';
    if (first == '}' || first == '\\')
        *at++ = '\\';
    memcpy(at, key.data, key.size);
    at[key.size] = '}';
    out->key = (struct shed_key){
        .redis = {out->bytes, (size_t)(at - out->bytes) + key.size + 1},
        .at = (unsigned)(at - out->bytes),
        .size = (unsigned)key.size};
}

struct shed_bytes shed_key_of_name(struct shed_bytes redis)
{
    const char *at = memchr(redis.data, '{', redis.size);
    const char *end = (const char *)redis.data + redis.size - 1;

    if (at == NULL || at == end)
        return (struct shed_bytes){NULL, 0};
    at++;
    if (*at == '\\' && at + 1 < end)
        at++;
    return (struct shed_bytes){at, (size_t)(end - at)};
}
