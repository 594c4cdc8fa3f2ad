/* Translates the commands of an exchange for the model, and the model's replies
 * for the exchange. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "support/lock_model.h"

struct lock_model_text lock_model_text(const void *bytes, size_t size)
{
    struct lock_model_text text = {.size = size};

    assert(size < LOCK_MODEL_TEXT);
    memcpy(text.at, bytes, size);
    return text;
}

uint64_t lock_model_number(const struct lock_model_text *text)
{
    uint64_t number = 0;

    for (size_t i = 0; i < text->size; i++)
        number = number * 10 + (uint64_t)(text->at[i] - '0');
    return number;
}

static bool is_command(const struct shed_args *args, const char *text)
{
    return args->size[0] == strlen(text) &&
           memcmp(args->at[0], text, args->size[0]) == 0;
}

void lock_model_read(struct lock_model_call *c, enum shed_script script,
                     const struct shed_args *args)
{
    static const char *const commands[] = {"SETNX",   "GET",  "GETSET", "DEL",
                                           "PEXPIRE", "PTTL", "EVALSHA"};
    int keys = 1, at = 1;

    c->what = LOCK_MODEL_SETNX;
    c->script = script;
    while (!is_command(args, commands[c->what]))
        c->what++;
    if (c->what == LOCK_MODEL_SCRIPT) {
        keys = args->at[2][0] - '0';
        at = 3;
    }
    for (int i = at + keys; i < args->count; i++)
        c->arg[i - at - keys] = lock_model_text(args->at[i], args->size[i]);
    c->is_fair = keys == 6;
}

static struct shed_reply string_of(const char *at, size_t size)
{
    return (struct shed_reply){
        .type = SHED_REPLY_STRING, .text = (char *)(uintptr_t)at, .size = size};
}

const struct shed_reply *
lock_model_to_reply(const struct lock_model_reply *reply,
                    struct lock_model_memory *m)
{
    static const char *const kinds[] = {"HELD", "TAKEN"};
    struct shed_reply number = {.type = SHED_REPLY_INTEGER,
                                .integer = reply->integer};

    m->whole = number;
    if (reply->type == LOCK_MODEL_NIL) {
        m->whole.type = SHED_REPLY_NIL;
    } else if (reply->type == LOCK_MODEL_STRING) {
        m->whole = string_of(reply->string.at, reply->string.size);
    } else if (reply->type != LOCK_MODEL_INTEGER) {
        const char *kind = kinds[reply->type - LOCK_MODEL_HELD];
        snprintf(m->digits, sizeof(m->digits), "%lld", reply->integer);
        m->part[0] = string_of(kind, strlen(kind));
        m->part[1] = reply->type == LOCK_MODEL_HELD
                         ? string_of(m->digits, strlen(m->digits))
                         : number;
        m->parts[0] = &m->part[0];
        m->parts[1] = &m->part[1];
        m->whole = (struct shed_reply){
            .type = SHED_REPLY_ARRAY, .size = 2, .at = m->parts};
    }
    return &m->whole;
}
