/* Options of a demo program, by a table: a file of rows, NAME.def, which
 * demo/run also reads, so that wrong options are refused before anything is
 * built.
 *
 *     #define CLI_OPTIONS struct choice
 *     static const struct cli_option table[] = {
 *     #include "avalanche.def"
 *     }; */
#ifndef DEMO_CLI_H
#define DEMO_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The type of the field in the options. Texts point into the command line. */
enum cli_kind {
    CLI_NUMBER, /* uint64_t, within a range */
    CLI_REAL,   /* double, within a range */
    CLI_LIST,   /* const char *: some of the words, separated by commas; all by
                   default */
    CLI_CHOICE, /* const char *: one of the words; optional */
    CLI_FLAG,   /* bool: true if it is given; it takes no value */
    CLI_URI,    /* const char *, required */
    CLI_TEXT,   /* const char *, optional */
    CLI_FOLDER, /* const char *: a directory to write files to, or NULL */
    CLI_OUTPUT  /* const char *: a file to write, or NULL */
};

struct cli_option {
    const char *name;
    enum cli_kind kind;
    size_t offset;
    uint64_t low, high;
    const char *words;
};

/* A row of a table. demo/run parses the rows: one per line, without names of
 * constants. */
#define CLI_ROW(name, kind, field, low, high, words)                           \
    {name, kind, offsetof(CLI_OPTIONS, field), low, high, words},
#define NUMBER(name, field, low, high)                                         \
    CLI_ROW(name, CLI_NUMBER, field, low##u, high##u, NULL)
#define REAL(name, field, low, high)                                           \
    CLI_ROW(name, CLI_REAL, field, low##u, high##u, NULL)
#define LIST(name, field, words) CLI_ROW(name, CLI_LIST, field, 0, 0, words)
#define CHOICE(name, field, words) CLI_ROW(name, CLI_CHOICE, field, 0, 0, words)
#define FLAG(name, field) CLI_ROW(name, CLI_FLAG, field, 0, 0, NULL)
#define URI(name, field) CLI_ROW(name, CLI_URI, field, 0, 0, NULL)
#define TEXT(name, field) CLI_ROW(name, CLI_TEXT, field, 0, 0, NULL)
#define FOLDER(name, field) CLI_ROW(name, CLI_FOLDER, field, 0, 0, NULL)
#define OUTPUT(name, field) CLI_ROW(name, CLI_OUTPUT, field, 0, 0, NULL)

struct cli {
    const char *program, *help;
    const struct cli_option *options;
    size_t count;
};

#define CLI_USAGE_STATUS 2
#define CLI_OPTIONS_MAX 48

/* Fill options from the command line. --help prints the help and exits with 0;
 * a wrong option is named, and the program exits with CLI_USAGE_STATUS. */
void cli_parse(const struct cli *cli, void *options, int argc, char **argv);

/* Set is_chosen of each name that is in a comma-separated list. */
void cli_choose(const struct cli *cli, const char *option, const char *list,
                const char *const *names, size_t count, bool *is_chosen);

/* Exit with a complaint about an option. */
void cli_refuse(const struct cli *cli, const char *option, const char *why);

/* Open the file that an option names, early, so that no work is done in vain.
 * NULL for NULL. */
FILE *cli_open_output(const struct cli *cli, const char *option,
                      const char *path);

/* Returns whether everything has been written. NULL is allowed. */
bool cli_close_output(const struct cli *cli, const char *option, FILE *out);

#endif
