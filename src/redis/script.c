/* Calls of scripts: by digest, and by text where the server has lost it. */
#include "redis/script.h"

#include <string.h>

void shed_script_begin(struct shed_args *args, enum shed_script script,
                       const char *keys)
{
    args->count = 0;
    shed_args_add_text(args, "EVALSHA");
    shed_args_add_text(args, shed_script_texts[script].sha1);
    shed_args_add_text(args, keys);
}

void shed_script_by_text(struct shed_args *args, enum shed_script script)
{
    args->at[0] = "EVAL";
    args->size[0] = strlen("EVAL");
    args->at[1] = shed_script_texts[script].text;
    args->size[1] = shed_script_texts[script].size;
}

bool shed_script_is_unknown(const struct shed_reply *reply)
{
    return shed_reply_begins(reply, "NOSCRIPT");
}
