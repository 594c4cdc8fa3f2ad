/* Options of a demo program: tables of texts and of numbers. */
#ifndef DEMO_CLI_H
#define DEMO_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Offsets are those of a const char * and of a uint64_t in the options. */
struct cli_text {
    const char *name;
    size_t offset;
    bool is_required;
};

struct cli_number {
    const char *name;
    size_t offset;
    uint64_t low, high;
};

struct cli {
    const char *program, *help;
    const struct cli_text *texts;
    size_t text_count;
    const struct cli_number *numbers;
    size_t number_count;
};

#define CLI_USAGE_STATUS 2
#define CLI_OPTIONS_MAX 32

/* Fill options from the command line. --help prints the help and ends with 0;
 * what is wrong is named and ends with CLI_USAGE_STATUS. */
void cli_parse(const struct cli *cli, void *options, int argc, char **argv);

/* Set is_chosen of each name that a comma-separated list has. */
void cli_choose(const struct cli *cli, const char *option, const char *list,
                const char *const *names, size_t count, bool *is_chosen);

/* End with a complaint about an option. */
void cli_refuse(const struct cli *cli, const char *option, const char *why);

/* Open what an option names, before work is done for nothing; NULL for NULL. */
FILE *cli_open_output(const struct cli *cli, const char *option,
                      const char *path);

/* Returns whether all has been written. NULL is allowed. */
bool cli_close_output(const struct cli *cli, const char *option, FILE *out);

#endif
