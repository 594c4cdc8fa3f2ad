/* Calls of scripts: by digest, and by text if the server does not know the
 * script. */
#include "wire/script.h"

#include <stdlib.h>
#include <string.h>

void shed_script_begin(struct shed_args *args, enum shed_script script,
                       const char *keys)
{
    *args = (struct shed_args){.script = &shed_script_texts[script]};
    shed_args_add_text(args, "EVALSHA");
    shed_args_add_text(args, args->script->sha1);
    shed_args_add_text(args, keys);
}

bool shed_script_is_reply(const struct shed_reply *reply, uint64_t number)
{
    char digits[SHED_DIGITS];
    size_t size = 0;
    const char *bytes = shed_reply_bytes(shed_reply_at(reply, 0), &size);

    if (shed_reply_error(reply) != NULL)
        return true;
    shed_write_digits(digits, number);
    return bytes != NULL && size == strlen(digits) &&
           memcmp(bytes, digits, size) == 0;
}

void shed_script_by_text(struct shed_args *args)
{
    args->at[0] = "EVAL";
    args->size[0] = strlen("EVAL");
    args->at[1] = args->script->text;
    args->size[1] = args->script->size;
}

struct shed_args *shed_script_keep(const struct shed_args *args)
{
    const struct shed_args *a = args;
    struct shed_args *copy;
    size_t size = 0, count = 0;
    char *at;

    do {
        for (int i = 0; i < a->count; i++)
            size += a->size[i];
        count++;
    } while ((a = a->more) != NULL);
    copy = malloc(count * sizeof(*copy) + size);
    if (copy == NULL)
        return NULL;
    at = (char *)(copy + count);
    for (size_t i = 0; i < count; i++, args = args->more) {
        copy[i] = *args;
        copy[i].more = i + 1 < count ? &copy[i + 1] : NULL;
        for (int j = 0; j < args->count; j++) {
            memcpy(at, args->at[j], args->size[j]);
            copy[i].at[j] = at;
            at += args->size[j];
        }
    }
    return copy;
}
