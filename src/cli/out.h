/*
 * What a command has found, said once for text and for JSON. Where text is
 * wanted, out is NULL: the functions that print write, and the functions that
 * set a member do nothing. Where JSON is wanted, out is an object: the
 * functions that set a member fill it, and the functions that print do nothing.
 * So a command states the line and the members of each fact, and never asks
 * which of the two is wanted.
 */
#ifndef CLI_OUT_H
#define CLI_OUT_H

#include <jansson.h>

#include "cli/cli.h"
#include "cli/text.h"

/* Begin the answer of a call. Returns: NULL without --json. */
json_t *cli_out_open(const struct cli_call *call);

/* Print the object, if it is one and has members, the call's answer on several
 * lines and any other on a single one; free it, and flush the output. */
void cli_out_close(const struct cli_call *call, json_t *out);

/* Print to the standard output, if out is NULL. */
__attribute__((format(printf, 2, 3))) void
cli_out_print(const json_t *out, const char *format, ...);

/* Print a line with a name and a value: "  name       value". */
__attribute__((format(printf, 3, 4))) void
cli_out_line(const json_t *out, const char *name, const char *format, ...);

/* The same with bytes, escaped; "..." after limit of them. */
void cli_out_line_bytes(const json_t *out, const char *name,
                        struct shed_bytes bytes, size_t limit);

/* Set the member name. cli_out_set takes over the value. */
void cli_out_set(json_t *out, const char *name, json_t *value);
void cli_out_number(json_t *out, const char *name, uint64_t number);
void cli_out_flag(json_t *out, const char *name, bool flag);

/* Print a line with the number and what is counted, unless it is 0, and set the
 * member. */
void cli_out_count(json_t *out, const char *name, uint64_t number,
                   const char *counted);

/* A text that is ASCII; null if it is NULL. */
void cli_out_text(json_t *out, const char *name, const char *text);

/* A number; null if it is not known, or is negative, which means that there is
 * none. */
void cli_out_maybe(json_t *out, const char *name, bool is_known,
                   long long number);
void cli_out_ms(json_t *out, const char *name, long long ms);

/* The bytes as a string if they are UTF-8; else the member name_base64. */
void cli_out_bytes(json_t *out, const char *name, struct shed_bytes bytes);

/* Make an object, or a list, the member name; add an object to a list. Returns:
 * what was made, or NULL for text. */
json_t *cli_out_object(json_t *out, const char *name);
json_t *cli_out_list(json_t *out, const char *name);
json_t *cli_out_item(json_t *list);

#endif
