/*
 * What all commands of the tool share: the arguments of a call, how it ends,
 * and the tables of commands and options.
 *
 * The tool ends at the first failure, wherever it happens: cli_fail reports it
 * as text and, with --json, as JSON.
 */
#ifndef CLI_H
#define CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include <snowshed/snowshed.h>

struct cli_redis;

/* Exit statuses; the man page explains them. */
enum cli_status {
    CLI_YES = 0,
    CLI_NO = 1,    /* the question was answered with no */
    CLI_USAGE = 2, /* the command line is wrong */
    CLI_FAILED = 3 /* a server cannot be reached, or refuses */
};

/* One call of the tool: the values given, or the defaults. A command reads the
 * options that its row of the table names. */
struct cli_call {
    const struct cli_command *command;
    struct cli_redis *redis; /* once a command has opened it */
    json_t *out;             /* the answer; see out.h */
    char **words;            /* the arguments that are not options */
    size_t count;
    /* options of all commands */
    const char *redis_uri;
    const char *tls_ca, *tls_cert, *tls_key;
    uint64_t timeout_ms;
    bool is_json;
    /* options of some commands */
    bool is_escaped;
    bool is_raw;
    bool are_tags;
    bool is_all;
    bool is_exact;
    const char *mysql;
    const char *query;
    uint64_t grace_ms;
    uint64_t rate;
    uint64_t sample;
    uint64_t count_limit;
    uint64_t seconds;
    const char *cache;
    const char *lock;
};

/* Keys that SCAN looks at per second, if nothing else is said. */
#define CLI_KEYS_PER_S 20000

struct cli_command {
    const char *name;
    const char *arguments; /* as shown by --help */
    size_t least, most;    /* how many words */
    const char *summary;   /* one line */
    const char *help;      /* the text below the options */
    const char *options;   /* " name name " */
    uint64_t rate;         /* the default of --rate */
    int (*run)(struct cli_call *call);
};

extern const struct cli_command cli_commands[];
extern const size_t cli_command_count;

/* Parse the arguments of a command; argv[0] is the name to show. Ends the
 * program if they are wrong. */
void cli_options_parse(struct cli_call *call, int argc, char **argv);

/* End the program. The text says what was wrong and what to do, and contains no
 * secret. */
_Noreturn __attribute__((format(printf, 3, 4))) void
cli_fail(const struct cli_call *call, enum cli_status status,
         const char *format, ...);

/* The same, with the library's reason. */
_Noreturn void cli_fail_error(const struct cli_call *call,
                              const struct shed_error *err);

_Noreturn void cli_fail_nomem(void);

/* Allocate memory, of zeros, or end the program. */
void *cli_alloc(size_t count, size_t size);

/* The commands. */
int cli_get(struct cli_call *call);
int cli_invalidate(struct cli_call *call);
int cli_watch(struct cli_call *call);
int cli_locks(struct cli_call *call);
int cli_scan(struct cli_call *call);
int cli_check(struct cli_call *call);
int cli_doctor(struct cli_call *call);

#endif
