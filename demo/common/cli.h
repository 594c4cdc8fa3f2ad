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

/* The type of the field in the options. Texts point into the command line. */
enum cli_kind {
    CLI_NUMBER, /* uint64_t, within a range */
    CLI_REAL,   /* double, within a range */
    CLI_CHOICE, /* const char *: one of the words; optional */
    CLI_FLAG,   /* bool: true if it is given; it takes no value */
    CLI_URI,    /* const char *, required */
    CLI_TEXT    /* const char *, optional */
};

struct cli_option {
    const char *name;
    enum cli_kind kind;
    size_t offset;
    uint64_t low, high;
    const char *words;
};

/* A row of a table. demo/run and table.py parse the rows: one per line, without
 * names of constants. Of a LIST a script takes several words, with commas
 * between them, and gives a program one of them; an OUTPUT, or a FOLDER, is a
 * script's alone. */
#define CLI_ROW(name, kind, field, low, high, words)                           \
    {name, kind, offsetof(CLI_OPTIONS, field), low, high, words},
#define NUMBER(name, field, low, high)                                         \
    CLI_ROW(name, CLI_NUMBER, field, low##u, high##u, NULL)
#define REAL(name, field, low, high)                                           \
    CLI_ROW(name, CLI_REAL, field, low##u, high##u, NULL)
#define LIST CHOICE
#define CHOICE(name, field, words) CLI_ROW(name, CLI_CHOICE, field, 0, 0, words)
#define FLAG(name, field) CLI_ROW(name, CLI_FLAG, field, 0, 0, NULL)
#define URI(name, field) CLI_ROW(name, CLI_URI, field, 0, 0, NULL)
#define TEXT(name, field) CLI_ROW(name, CLI_TEXT, field, 0, 0, NULL)
#define OUTPUT(name, field)

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

/* Exit with a complaint about an option. */
_Noreturn void cli_refuse(const struct cli *cli, const char *option,
                          const char *why);

#endif
