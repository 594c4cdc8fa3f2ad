/* The command line: one table of options, from which each command selects its
 * own. argp parses it. */
#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/text.h"

#define FIRST_KEY 256 /* larger than any short option */

#define TIMEOUT_DEFAULT_MS 2000
#define GRACE_DEFAULT_MS 1000
#define NAME_DEFAULT "snowshed" /* of which doctor checks the rights */

struct cli_option {
    const char *name;
    int letter;           /* 0: it has none */
    const char *argument; /* NULL: it is a flag */
    size_t offset;
    uint64_t most; /* of a number, which is 1 at least; 0: it is a text */
    const char *help;
};

#define AT(field) offsetof(struct cli_call, field)

static const struct cli_option table[] = {
    /* options of all commands */
    {"redis", 'r', "URI", AT(redis_uri), 0,
     "redis://[user[:password]@]host[:port][/db], rediss:// for TLS, "
     "unix:/path[?db=n], redis+cluster://host:port,host:port, or "
     "redis+sentinel://host,host,host/name; else the environment's "
     "SNOWSHED_REDIS, which other users cannot read"},
    {"cacert", 0, "FILE", AT(tls_ca), 0,
     "certificates of the authorities to trust with rediss://, a file or a "
     "directory; else those of the system"},
    {"cert", 0, "FILE", AT(tls_cert), 0, "certificate to show to the server"},
    {"key", 0, "FILE", AT(tls_key), 0, "its private key"},
    {"timeout", 't', "MS", AT(timeout_ms), 600000,
     "how long to wait for a connection, and for each answer (2000)"},
    {"json", 'j', NULL, AT(is_json), 0, "print JSON"},
    /* options of some commands */
    {"escaped", 'e', NULL, AT(is_escaped), 0,
     "keys have \\\\ and \\xNN for bytes, as they are printed"},
    {"raw", 0, NULL, AT(is_raw), 0,
     "print the payload's bytes and nothing else"},
    {"tags", 0, NULL, AT(are_tags), 0,
     "what is given are tags, and all entries that have one become misses"},
    {"all-entries", 0, NULL, AT(is_all), 0,
     "all entries of the cache become misses"},
    {"count", 'n', "N", AT(count_limit), 1000000000, "stop after this many"},
    {"rate", 'R', "N", AT(rate), 10000000,
     "do at most this many per second: keys that SCAN looks at (20000); for "
     "check, keys compared (1000); for watch, changes shown (1000)"},
    {"seconds", 'S', "N", AT(seconds), 86400, "go on for this many seconds"},
    {"cache", 0, "NAME", AT(cache), 0, "check the rights to this cache"},
    {"lock", 0, "NAME", AT(lock), 0, "check the rights to this lock"},
    {"mysql", 'm', "URI", AT(mysql), 0,
     "mysql://[user[:password]@]host[:port]/database or "
     "mysql://user@/database?socket=/path; else the environment's "
     "SNOWSHED_MYSQL"},
    {"query", 'q', "SQL", AT(query), 0,
     "SELECT of the key and the value, with one (?) for the keys"},
    {"sample", 's', "N", AT(sample), 100000,
     "compare this many random entries; default: all"},
    {"grace", 'g', "MS", AT(grace_ms), 600000,
     "how long to wait before a second look (1000)"},
    {"exact-key", 'x', NULL, AT(is_exact), 0, "the lock's key is NAME itself"},
};

#define TABLE_COUNT (sizeof(table) / sizeof(*table))
#define COMMON_COUNT 6

static int key_of(size_t i)
{
    return table[i].letter != 0 ? table[i].letter : FIRST_KEY + (int)i;
}

/* Gather the command's own options, then the common ones. NULL: the tool
 * itself. */
static void gather(const struct cli_command *command,
                   struct argp_option out[TABLE_COUNT + 1])
{
    enum { OWN = 1, COMMON = 2 };

    for (size_t i = 0; i < TABLE_COUNT; i++) {
        struct cli_text word = cli_format(" %s ", table[i].name);
        if (i < COMMON_COUNT ||
            (command != NULL && strstr(command->options, word.at) != NULL))
            *out++ =
                (struct argp_option){.name = table[i].name,
                                     .key = key_of(i),
                                     .arg = table[i].argument,
                                     .doc = table[i].help,
                                     .group = i < COMMON_COUNT ? COMMON : OWN};
    }
}

static uint64_t read_number(const struct cli_option *option, const char *text,
                            struct argp_state *state)
{
    char *end;
    unsigned long long value;

    errno = 0;
    value = strtoull(text, &end, 10);
    if (errno != 0 || *text < '0' || *text > '9' || *end != '\0' ||
        value == 0 || value > option->most)
        argp_error(state, "--%s: must be a number from 1 to %llu", option->name,
                   (unsigned long long)option->most);
    return value;
}

static bool take(struct cli_call *call, int key, char *text,
                 struct argp_state *state)
{
    for (size_t i = 0; i < TABLE_COUNT; i++) {
        void *field = (char *)call + table[i].offset;
        if (key_of(i) != key)
            continue;
        if (table[i].argument == NULL)
            *(bool *)field = true;
        else if (table[i].most > 0)
            *(uint64_t *)field = read_number(&table[i], text, state);
        else
            *(const char **)field = text;
        return true;
    }
    return false;
}

/* ------------------------------------------------------------- the words */

static error_t parse(int key, char *text, struct argp_state *state);

/* Parse words with the options of the command, or of the tool itself; argv[0]
 * is the name that --help and errors show. */
static void run_argp(struct cli_call *call, const char *arguments,
                     const char *help, int argc, char **argv, unsigned flags)
{
    struct argp_option options[TABLE_COUNT + 1] = {{0}};
    struct argp argp = {.options = options,
                        .parser = parse,
                        .args_doc = arguments,
                        .doc = help};
    error_t failure;

    gather(call->command, options);
    failure = argp_parse(&argp, argc, argv, flags, NULL, call);
    if (failure != 0)
        cli_fail(call, CLI_USAGE, "%s", strerror(failure));
}

/* Parse what follows the command, whose place is argv[0]. */
static void parse_words(struct cli_call *call, int argc, char **argv)
{
    struct cli_text name = cli_format("snowshed %s", call->command->name);
    struct cli_text help =
        cli_format("%s.\n\n%s", call->command->summary, call->command->help);

    argv[0] = name.at;
    call->words = cli_alloc((size_t)argc, sizeof(*call->words));
    run_argp(call, call->command->arguments, help.at, argc, argv, 0);
}

/* The command of a name. Ends the program if there is none. */
static const struct cli_command *find_command(struct argp_state *state,
                                              const char *name)
{
    for (size_t i = 0; i < cli_command_count; i++)
        if (strcmp(cli_commands[i].name, name) == 0)
            return &cli_commands[i];
    argp_error(state, "unknown command '%s'", name);
    return NULL;
}

/* Parse up to the first word, which is the command; then its own options and
 * words. */
static error_t parse(int key, char *text, struct argp_state *state)
{
    struct cli_call *call = state->input;
    const struct cli_command *command = call->command;

    if (key == ARGP_KEY_ARG && command == NULL) {
        call->command = find_command(state, text);
        call->rate = call->rate > 0 ? call->rate : call->command->rate;
        parse_words(call, state->argc - state->next + 1,
                    state->argv + state->next - 1);
        state->next = state->argc;
    } else if (key == ARGP_KEY_ARG) {
        if (call->count >= command->most)
            argp_error(state, "unexpected argument '%s'", text);
        call->words[call->count++] = text;
    } else if (key == ARGP_KEY_END) {
        if (command == NULL)
            argp_error(state, "a command is missing");
        else if (call->count < command->least)
            argp_error(state, "expected %s", command->arguments);
    } else if (!take(call, key, text, state)) {
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

/* The text of --help: the commands in front of the options. */
static struct cli_text list_commands(void)
{
    struct cli_text text =
        cli_format("Look at the caches and locks that snowshed keeps in Redis."
                   "\n\nCommands:\n");

    for (size_t i = 0; i < cli_command_count; i++)
        text = cli_format("%s  %-10s %s\n", text.at, cli_commands[i].name,
                          cli_commands[i].summary);
    return cli_format("%s\n'snowshed COMMAND --help' tells more about one, "
                      "'man snowshed' all.\vStatus 0: yes; 1: no; 2: the "
                      "command line is wrong; 3: a server cannot be reached, "
                      "or refuses.",
                      text.at);
}

void cli_options_parse(struct cli_call *call, int argc, char **argv)
{
    static char version[64];
    struct cli_text help = list_commands();

    (void)snprintf(version, sizeof(version), "snowshed %s", shed_version());
    argp_program_version = version;
    argp_err_exit_status = CLI_USAGE;
    call->redis_uri = getenv("SNOWSHED_REDIS");
    call->mysql = getenv("SNOWSHED_MYSQL");
    call->timeout_ms = TIMEOUT_DEFAULT_MS;
    call->grace_ms = GRACE_DEFAULT_MS;
    call->cache = call->lock = NAME_DEFAULT;
    run_argp(call, "COMMAND [ARGUMENT...]", help.at, argc, argv, ARGP_IN_ORDER);
}
