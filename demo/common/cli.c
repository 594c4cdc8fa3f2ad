/* Options by table, with getopt_long. */
#include "cli.h"

#include <assert.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HELP CLI_OPTIONS_MAX /* getopt_long's value for --help */

void cli_refuse(const struct cli *cli, const char *option, const char *why)
{
    (void)fprintf(stderr, "%s: --%s: %s (see --help)\n", cli->program, option,
                  why);
    exit(CLI_USAGE_STATUS);
}

static _Noreturn void refuse_number(const struct cli *cli,
                                    const struct cli_option *option)
{
    char why[80];

    (void)snprintf(why, sizeof(why), "must be a number from %llu to %llu",
                   (unsigned long long)option->low,
                   (unsigned long long)option->high);
    cli_refuse(cli, option->name, why);
}

static uint64_t parse_number(const struct cli *cli,
                             const struct cli_option *option, const char *text)
{
    char *end;
    unsigned long long value;

    errno = 0;
    value = strtoull(text, &end, 10);
    if (errno != 0 || *text < '0' || *text > '9' || *end != '\0' ||
        value < option->low || value > option->high)
        refuse_number(cli, option);
    return value;
}

/* Parse a number of digits that may contain a point. */
static double parse_real(const struct cli *cli, const struct cli_option *option,
                         const char *text)
{
    char *end;
    double value = strtod(text, &end);

    if (*text == '\0' || text[strspn(text, "0123456789.")] != '\0' ||
        *end != '\0' || value < (double)option->low ||
        value > (double)option->high)
        refuse_number(cli, option);
    return value;
}

static void *field_of(void *options, const struct cli_option *option)
{
    return (char *)options + option->offset;
}

static const char **text_of(void *options, const struct cli_option *option)
{
    return field_of(options, option);
}

/* Whether a word is in a comma-separated list. */
static bool has_word(const char *words, const char *word)
{
    size_t length;

    for (; *words != '\0'; words += length + (words[length] != '\0')) {
        length = strcspn(words, ",");
        if (length == strlen(word) && strncmp(words, word, length) == 0)
            return true;
    }
    return false;
}

static const char *parse_choice(const struct cli *cli,
                                const struct cli_option *option,
                                const char *text)
{
    char why[120];

    if (!has_word(option->words, text)) {
        (void)snprintf(why, sizeof(why), "does not know '%.40s', only %s", text,
                       option->words);
        cli_refuse(cli, option->name, why);
    }
    return text;
}

static void take(const struct cli *cli, void *options,
                 const struct cli_option *option, const char *text)
{
    switch (option->kind) {
    case CLI_NUMBER:
        *(uint64_t *)field_of(options, option) =
            parse_number(cli, option, text);
        break;
    case CLI_REAL:
        *(double *)field_of(options, option) = parse_real(cli, option, text);
        break;
    case CLI_CHOICE:
        *text_of(options, option) = parse_choice(cli, option, text);
        break;
    case CLI_FLAG:
        *(bool *)field_of(options, option) = true;
        break;
    case CLI_URI:
    case CLI_TEXT:
        *text_of(options, option) = text;
        break;
    }
}

static void make_table(const struct cli *cli, struct option *table)
{
    *table++ = (struct option){"help", no_argument, NULL, HELP};
    for (size_t i = 0; i < cli->count; i++)
        *table++ = (struct option){
            cli->options[i].name,
            cli->options[i].kind == CLI_FLAG ? no_argument : required_argument,
            NULL, (int)i};
    *table = (struct option){0};
}

void cli_parse(const struct cli *cli, void *options, int argc, char **argv)
{
    struct option table[CLI_OPTIONS_MAX + 2];
    int which;

    assert(cli->count <= CLI_OPTIONS_MAX);
    make_table(cli, table);
    while ((which = getopt_long(argc, argv, "", table, NULL)) != -1) {
        if (which == '?')
            exit(CLI_USAGE_STATUS); /* getopt_long has reported it */
        if (which == HELP) {
            (void)fputs(cli->help, stdout);
            exit(EXIT_SUCCESS);
        }
        take(cli, options, &cli->options[which], optarg);
    }
    if (optind < argc)
        cli_refuse(cli, argv[optind], "is not an option");
    for (size_t i = 0; i < cli->count; i++)
        if (cli->options[i].kind == CLI_URI &&
            *text_of(options, &cli->options[i]) == NULL)
            cli_refuse(cli, cli->options[i].name, "is missing");
}
