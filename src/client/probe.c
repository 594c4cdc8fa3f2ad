/* What Redis grants. The invariant: nothing in Redis is changed. */
#include "client/probe.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/hash_tag.h"
#include "client/client.h"

/* Of a right that is listed, so that all six keys of a lock are: a long key is
 * cut, and listed as a pattern. */
#define RIGHT_BYTES 40
#define KEY_SHOWN 30
/* What the rest of the reason leaves. */
#define LIST_BYTES                                                             \
    (SHED_REASON_BYTES - sizeof("Redis does not grant: (and 99 more)"))
#define KEY_MAX_BYTES (2 * SHED_KEY_MAX_BYTES + 32)

/* The format of a use's first key, and the script's name of the use. */
static const struct {
    const char *word, *before, *behind;
} uses[] = {[SHED_USE_CACHE] = {"cache", "", ":{snowshed:probe}"},
            [SHED_USE_LOCK] = {"lock", "lock:{", "}"},
            [SHED_USE_TEXT_LOCK] = {"text", "", ""},
            [SHED_USE_EXACT_LOCK] = {"lock", "", ""},
            [SHED_USE_TAGS] = {"tags", "", ":tags"},
            [SHED_USE_FLEET] = {"fleet", "", ":loads"},
            [SHED_USE_REPLICAS] = {"replicas", "lock:{", "}"}};

static size_t add(char *key, size_t at, const void *bytes, size_t size)
{
    memcpy(key + at, bytes, size);
    return at + size;
}

/* Write the first key of a use. Returns its size. */
static size_t name_key(char key[KEY_MAX_BYTES], enum shed_use use,
                       struct shed_bytes name)
{
    size_t size = add(key, 0, uses[use].before, strlen(uses[use].before));

    size = add(key, size, name.data, name.size);
    return add(key, size, uses[use].behind, strlen(uses[use].behind));
}

/* Write the prefix of the other keys' names of an exact lock, whose first key
 * is its name. Returns its size. */
static size_t name_sides(char key[KEY_MAX_BYTES], struct shed_bytes name)
{
    static const char before[] = "lock:={";
    struct shed_hash_tag tag;
    size_t size;

    shed_hash_tag_set(&tag, name);
    size = add(key, 0, before, sizeof(before) - 1);
    size = add(key, size, tag.at, tag.size);
    size = add(key, size, "}", 1);
    return add(key, size, name.data, name.size);
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

enum shed_code shed_probe(struct shed_client *client, enum shed_use use,
                          struct shed_bytes name, uint64_t deadline_ms,
                          struct shed_error *err)
{
    struct shed_reply *reply = NULL;
    struct shed_args args;
    bool is_exact = use == SHED_USE_EXACT_LOCK;
    char key[KEY_MAX_BYTES], channel[64];
    enum shed_code code;
    size_t size;
    struct shed_server *server;

    (void)snprintf(channel, sizeof(channel), SHED_PROCESS_CHANNEL "%s",
                   client->process);
    shed_script_begin(&args, SHED_SCRIPT_PROBE, "0");
    shed_args_add_text(&args, uses[use].word);
    size = is_exact ? name_sides(key, name) : name_key(key, use, name);
    shed_args_add(&args, is_exact ? name.data : key,
                  is_exact ? name.size : size);
    shed_args_add_text(&args, client->has_channel ? channel : "");
    shed_args_add(&args, key, size);
    shed_client_wait(client, deadline_ms);
    /* by hand, because the script has its key among its arguments */
    server = shed_client_hold(client, shed_bytes(key, size));
    code = shed_links_call(server->links, &args, 1, &reply, NULL, NULL,
                           deadline_ms, err);
    shed_client_give_back(client, server);
    if (code == SHED_OK)
        code = conclude(client, reply, err);
    shed_reply_free(reply);
    return code;
}
