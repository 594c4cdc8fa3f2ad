/*
 * snowshed: a tool for operators, about the caches and locks in a Redis.
 *
 * The table of commands, and how a call ends.
 */
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/key.h"
#include "cli/out.h"
#include "cli/redis.h"

#define KEYS_HELP                                                              \
    "KEY is the key that the program passes to the library. With --escaped, "  \
    "\\\\ and \\xNN in it mean bytes, as in what the tool prints."

const struct cli_command cli_commands[] = {
    {"get", "CACHE KEY", 2, 2,
     "Show an entry, and what a caller of its key would get now",
     "Status 0: Redis would answer the caller with a row, or with no such row; "
     "1: the caller would wait, load or fail. With --raw, 0: there is a "
     "payload; 1: there is none.\v" KEYS_HELP,
     " escaped raw ", 0, cli_get},
    {"invalidate", "CACHE [KEY...]", 1, SIZE_MAX,
     "Remove entries, and revoke the leases of their loads",
     "As shed_invalidate does: nothing that was loaded before can be stored "
     "after. --all-entries is for every cache, --tags for a cache whose "
     "programs set the option tags_limit. Status 0: all of it is done; 1: "
     "there is no such cache.\v" KEYS_HELP,
     " escaped tags all-entries rate ", CLI_KEYS_PER_S, cli_invalidate},
    {"watch", "CACHE [KEY]", 1, 2,
     "Show what happens to entries, as it happens",
     "It needs no keyspace notifications, but the right to CLIENT TRACKING. "
     "Ended by --count or --seconds, status 0: something happened; 1: "
     "nothing.\v" KEYS_HELP,
     " escaped count seconds rate ", 1000, cli_watch},
    {"scan", "[CACHE]", 0, 1, "List the caches, or count the entries of one",
     "By SCAN, at a bounded rate, which looks at all keys of the database. "
     "Hot keys are found by redis-cli --hotkeys. Status 0: there are entries; "
     "1: there are none.",
     " rate ", CLI_KEYS_PER_S, cli_scan},
    {"check", "CACHE", 1, 1,
     "Compare entries with the database's rows, and name the stale ones",
     "Needs --mysql and --query, which are what the program gave to "
     "shed_mysql_source_open. An entry is stale when its row is another one, "
     "and both are still so --grace later. Status 0: none is; 1: some are, or "
     "there was nothing to compare; 3: rows could not be read.",
     " mysql query sample rate grace ", 1000, cli_check},
    {"locks", "[NAME]", 0, 1,
     "Show which locks are held, by whom, and who waits",
     "With a NAME, that lock in full, at lock:{NAME} or at the key NAME. "
     "Status 0: it is held; 1: it is free. Without a NAME, 0: some are held; "
     "1: none is.",
     " escaped exact-key rate ", CLI_KEYS_PER_S, cli_locks},
    {"doctor", "[URI]", 0, 1, "Find what is wrong with a Redis, and what to do",
     "Of a cluster each primary is looked at, and with redis+sentinel:// what "
     "the sentinels say. Nothing is written. Status 0: all is well; 1: there "
     "are warnings or problems.",
     " cache lock ", 0, cli_doctor},
};
const size_t cli_command_count = sizeof(cli_commands) / sizeof(*cli_commands);

/* --------------------------------------------------------------- the end */

void cli_fail(const struct cli_call *call, enum cli_status status,
              const char *format, ...)
{
    char text[1024];
    va_list list;

    va_start(list, format);
    (void)vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    for (char *c = text; *c != '\0'; c++)
        if (*c < ' ' || *c > '~')
            *c = '?'; /* text from a server, or a file name, is not trusted */
    (void)fflush(stdout);
    (void)fprintf(stderr, "snowshed: %s\n", text);
    if (call->is_json) {
        json_t *out = cli_out_begin(call);
        cli_out_text(out, "error", text);
        cli_out_number(out, "status", status);
        cli_out_close(call, out);
    }
    exit((int)status);
}

void cli_fail_error(const struct cli_call *call, const struct shed_error *err)
{
    cli_fail(call, err->code == SHED_EINVAL ? CLI_USAGE : CLI_FAILED, "%s",
             err->reason);
}

void cli_fail_nomem(void)
{
    (void)fputs("snowshed: out of memory\n", stderr);
    exit(CLI_FAILED);
}

void *cli_alloc(size_t count, size_t size)
{
    void *memory = calloc(count > 0 ? count : 1, size);

    if (memory == NULL)
        cli_fail_nomem();
    return memory;
}

int main(int argc, char **argv)
{
    struct cli_call call = {0};
    int status;

    /* writing to a closed connection, or to a pipe without a reader, is to be
     * an error of that write */
    (void)signal(SIGPIPE, SIG_IGN);
    cli_options_parse(&call, argc, argv);
    call.out = cli_out_begin(&call);
    if (call.count > 0 && strstr(call.command->arguments, "CACHE") != NULL)
        cli_key_check_cache(&call, call.words[0]);
    status = call.command->run(&call);
    cli_out_close(&call, call.out);
    cli_redis_close(call.redis);
    free(call.words);
    return status;
}
