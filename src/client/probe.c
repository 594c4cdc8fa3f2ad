/* What Redis grants. The invariant: nothing in Redis is changed. */
#include "client/probe.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "client/client.h"

/* Of a right that is listed, so that all six keys of a lock are: a long key is
 * cut, and listed as a pattern. */
#define RIGHT_BYTES 40
#define KEY_SHOWN 30
/* What the rest of the reason leaves. */
#define LIST_BYTES                                                             \
    (SHED_REASON_BYTES - sizeof("Redis does not grant: (and 99 more)"))

static size_t add(char *key, size_t at, const void *bytes, size_t size)
{
    memcpy(key + at, bytes, size);
    return at + size;
}

/* Write a right as ACL SETUSER takes it: where a key has a byte that is not for
 * a pattern, any byte may be there, as behind the first bytes of a long one. */
static void write_right(char out[RIGHT_BYTES], const char *right, size_t size)
{
    bool is_key = size > 0 && right[0] == '~';
    const size_t most = is_key ? KEY_SHOWN : RIGHT_BYTES - 2;
    size_t at = 0;

    for (size_t i = 0; i < size && at < most; i++) {
        bool is_plain = right[i] >= ' ' && right[i] <= '~' &&
                        !(is_key && strchr(" *?[]\\", right[i]) != NULL);
        out[at++] = is_plain ? right[i] : '?';
    }
    if (at < size)
        out[at++] = '*';
    out[at] = '\0';
}

/* Fail with a list of what is missing, each right whole, and the number of
 * those that do not fit. */
static enum shed_code tell_missing(const struct shed_reply *missing,
                                   struct shed_error *err)
{
    char list[LIST_BYTES] = "", right[RIGHT_BYTES] = "", last[RIGHT_BYTES];
    size_t at = 0, count = shed_reply_count(missing), told;

    for (told = 0; told < count; told++) {
        size_t size = 0;
        const char *bytes =
            shed_reply_bytes(shed_reply_at(missing, told), &size);
        memcpy(last, right, sizeof(last));
        write_right(right, bytes, bytes != NULL ? size : 0);
        size = strlen(right);
        if (strcmp(right, last) == 0)
            continue; /* cut where they were still equal */
        if (at + 1 + size >= sizeof(list))
            break;
        list[at++] = ' ';
        at = add(list, at, right, size + 1) - 1;
    }
    if (told == count)
        return shed_fail(err, SHED_EDENIED, "Redis does not grant:%s", list);
    return shed_fail(err, SHED_EDENIED,
                     "Redis does not grant:%s (and %zu more)", list,
                     count - told);
}

static enum shed_code conclude(const struct shed_client *client,
                               const struct shed_reply *reply,
                               struct shed_error *err)
{
    const char *text = shed_reply_error(reply);

    if (text != NULL)
        return shed_fail(err, shed_reply_code(reply), "Redis %s: %s",
                         client->address->text, text);
    if (shed_reply_count(reply) > 0)
        return tell_missing(reply, err);
    return SHED_OK;
}

enum shed_code shed_probe(struct shed_client *client, const char *use,
                          struct shed_bytes key, struct shed_bytes sides,
                          uint64_t deadline_ms, struct shed_error *err)
{
    struct shed_reply *reply = NULL;
    struct shed_server *server;
    struct shed_args args;
    char channel[64];
    enum shed_code code;

    (void)snprintf(channel, sizeof(channel), SHED_PROCESS_CHANNEL "%s",
                   client->process);
    shed_script_begin(&args, SHED_SCRIPT_PROBE, "0");
    shed_args_add_text(&args, use);
    shed_args_add(&args, key.data, key.size);
    shed_args_add_text(&args, client->has_channel ? channel : "");
    shed_args_add(&args, sides.data, sides.size);
    shed_client_wait(client, deadline_ms);
    /* by hand, because the script has its key among its arguments */
    server = shed_client_hold(client, sides);
    code = shed_links_call(server->links, &args, 1, &reply, NULL, NULL,
                           deadline_ms, err);
    shed_client_give_back(client, server);
    if (code == SHED_OK)
        code = conclude(client, reply, err);
    shed_reply_free(reply);
    return code;
}
