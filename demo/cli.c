/* Options by table, with getopt_long. */
#include "cli.h"

#include <assert.h>
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

/* What getopt_long returns: below, the place of a number. */
#define FIRST_TEXT 1000
#define HELP 2000

void cli_refuse(const struct cli *cli, const char *option, const char *why)
{
    (void)fprintf(stderr, "%s: --%s: %s (see --help)\n", cli->program, option,
                  why);
    exit(CLI_USAGE_STATUS);
}

static uint64_t parse_number(const struct cli *cli, const struct cli_number *n,
                             const char *text)
{
    char *end;
    char why[80];
    unsigned long long value;

    errno = 0;
    value = strtoull(text, &end, 10);
    if (errno == 0 && *text >= '0' && *text <= '9' && *end == '\0' &&
        value >= n->low && value <= n->high)
        return value;
    (void)snprintf(why, sizeof(why), "must be a number from %llu to %llu",
                   (unsigned long long)n->low, (unsigned long long)n->high);
    cli_refuse(cli, n->name, why);
    return 0;
}

static const char **text_at(void *options, const struct cli_text *text)
{
    return (const char **)(void *)((char *)options + text->offset);
}

static void take(const struct cli *cli, void *options, int which,
                 const char *value)
{
    if (which == HELP) {
        (void)fputs(cli->help, stdout);
        exit(EXIT_SUCCESS);
    }
    if (which >= FIRST_TEXT) {
        *text_at(options, &cli->texts[which - FIRST_TEXT]) = value;
    } else {
        const struct cli_number *n = &cli->numbers[which];
        *(uint64_t *)(void *)((char *)options + n->offset) =
            parse_number(cli, n, value);
    }
}

static void make_table(const struct cli *cli, struct option *table)
{
    *table++ = (struct option){"help", no_argument, NULL, HELP};
    for (size_t i = 0; i < cli->text_count; i++)
        *table++ = (struct option){cli->texts[i].name, required_argument, NULL,
                                   FIRST_TEXT + (int)i};
    for (size_t i = 0; i < cli->number_count; i++)
        *table++ = (struct option){cli->numbers[i].name, required_argument,
                                   NULL, (int)i};
    *table = (struct option){0};
}

void cli_parse(const struct cli *cli, void *options, int argc, char **argv)
{
    struct option table[CLI_OPTIONS_MAX + 2];
    int which;

    assert(cli->text_count + cli->number_count <= CLI_OPTIONS_MAX);
    make_table(cli, table);
    while ((which = getopt_long(argc, argv, "", table, NULL)) != -1) {
        if (which == '?')
            exit(CLI_USAGE_STATUS); /* getopt_long has named it */
        take(cli, options, which, optarg);
    }
    if (optind < argc)
        cli_refuse(cli, argv[optind], "is not an option");
    for (size_t i = 0; i < cli->text_count; i++)
        if (cli->texts[i].is_required &&
            *text_at(options, &cli->texts[i]) == NULL)
            cli_refuse(cli, cli->texts[i].name, "is missing");
}

static size_t find(const char *name, size_t size, const char *const *names,
                   size_t count)
{
    size_t i = 0;

    while (i < count &&
           (strlen(names[i]) != size || strncmp(names[i], name, size) != 0))
        i++;
    return i;
}

void cli_choose(const struct cli *cli, const char *option, const char *list,
                const char *const *names, size_t count, bool *is_chosen)
{
    memset(is_chosen, 0, count * sizeof(*is_chosen));
    for (const char *at = list;; at++) {
        size_t size = strcspn(at, ","), i = find(at, size, names, count);
        char why[80];
        if (i == count) {
            (void)snprintf(why, sizeof(why), "does not know '%.*s'", (int)size,
                           at);
            cli_refuse(cli, option, why);
        }
        is_chosen[i] = true;
        at += size;
        if (*at == '\0')
            return;
    }
}

FILE *cli_open_output(const struct cli *cli, const char *option,
                      const char *path)
{
    FILE *out = path != NULL ? fopen(path, "w") : NULL;

    if (path != NULL && out == NULL)
        cli_refuse(cli, option, strerror(errno));
    return out;
}

bool cli_close_output(const struct cli *cli, const char *option, FILE *out)
{
    bool is_bad;

    if (out == NULL)
        return true;
    is_bad = fflush(out) != 0 || ferror(out) != 0;
    is_bad |= fclose(out) != 0;
    if (is_bad)
        (void)fprintf(stderr, "%s: --%s: cannot write: %s\n", cli->program,
                      option, strerror(errno));
    return !is_bad;
}
