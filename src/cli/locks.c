/* locks: finds the locks of a Redis by their keys, and shows each as lock does,
 * in a line. */
#include <stdlib.h>
#include <string.h>

#include "cli/lock_view.h"
#include "cli/walk.h"

#define COMMANDS_PER_LOCK 10

#define MAIN "lock:{"   /* NAME} */
#define EXACT "lock:={" /* TAG}NAME, and a suffix */
#define COUNTER ":f"

struct locks {
    const struct cli_call *call;
    json_t *names; /* a set of lock names, escaped, after "=" if exact */
    json_t *list;  /* of the answer */
    uint64_t held, denied;
};

static void add(struct locks *l, bool is_exact, const char *name, size_t size)
{
    struct cli_text key;

    if (size > SHED_LOCK_NAME_MAX_BYTES)
        return; /* no lock of the library */
    key = cli_format("%s%s", is_exact ? "=" : "{",
                     cli_escape(shed_bytes(name, size)).at);
    if (json_object_set_new(l->names, key.at, json_true()) != 0)
        cli_fail_nomem();
}

/* Take the name of the lock from its key. A lock with an exact key can be found
 * by the key of its fencing numbers (lock/keys.h). */
static void take_key(struct locks *l, const char *key, size_t size)
{
    size_t suffix = strlen(COUNTER);
    const char *tag;

    if (cli_begins(key, MAIN) && key[size - 1] == '}') {
        add(l, false, key + strlen(MAIN), size - strlen(MAIN "}"));
    } else if (cli_begins(key, EXACT) &&
               memcmp(key + size - suffix, COUNTER, suffix) == 0) {
        tag = memchr(key, '}', size);
        if (tag != NULL && tag + 1 < key + size - suffix)
            add(l, true, tag + 1, (size_t)(key + size - suffix - tag - 1));
    }
}

/* ----------------------------------------------------------------- showing */

static void print_line(const struct locks *l, const struct cli_lock *lock)
{
    bool has_process = cli_lock_has_process(lock);

    if (l->held == 1)
        printf("%-10s %-14s %8s  %s\n", "state", "left", "waiting", "lock");
    printf("%-10s %-14s %8lld  %s%s%s%s\n", cli_lock_states[lock->state].name,
           lock->pttl >= 0 ? cli_duration((uint64_t)lock->pttl).at : "no end",
           lock->queued, lock->is_exact ? "-x " : "", cli_word(lock->name).at,
           has_process ? "  " : "",
           has_process ? cli_presence_text(&lock->presence).at : "");
}

/* One that was released since it was found is not shown. */
static void show(struct locks *l, const char *key)
{
    struct cli_text name = cli_format("%s", key + 1);
    struct cli_lock lock;

    cli_lock_read(l->call->redis, shed_bytes(name.at, cli_unescape(name.at)),
                  key[0] == '=', &lock);
    if (lock.is_denied) {
        l->denied++;
    } else if (cli_lock_is_held(&lock)) {
        l->held++;
        if (l->call->out == NULL)
            print_line(l, &lock);
        else
            cli_lock_show(&lock, cli_out_item(l->list));
    }
    cli_lock_free(&lock);
}

int cli_locks(struct cli_call *call)
{
    struct locks l = {.call = call,
                      .names = json_object(),
                      .list = cli_out_list(call->out, "locks")};
    struct cli_walk walk;
    const char *key;
    json_t *value;

    if (l.names == NULL)
        cli_fail_nomem();
    cli_walk_begin_pattern(&walk, call->redis, "lock:*{*", call->rate);
    while (cli_walk_next(&walk))
        for (size_t i = 0; i < walk.count; i++)
            if (walk.found[i].name.data != NULL)
                take_key(&l, walk.found[i].name.data, walk.found[i].name.size);
    json_object_foreach(l.names, key, value)
    {
        cli_rate_keep(&walk.rate, COMMANDS_PER_LOCK);
        show(&l, key);
    }
    if (l.held == 0)
        cli_out_print(call->out, "no lock is held in this database\n");
    cli_out_count(call->out, "locks_denied", l.denied,
                  "locks may not be read by this user");
    json_decref(l.names);
    return l.held > 0 ? CLI_YES : CLI_NO;
}
