/*
 * What a command has found: one JSON object. With --json it is printed as it
 * is, else as a text that is made of it:
 *
 * - A member is a line with its name and its value; null is left out. What a
 *   name says of its value is shown by the value: is_, has_ (yes or no), _ms (a
 *   duration, or a date), bytes, size.
 * - An object is its name, and then its members, indented.
 * - A list of objects is a table, with strings that can be pasted in a shell.
 * - A list of texts, and the member text, are sentences, broken into lines.
 */
#ifndef CLI_OUT_H
#define CLI_OUT_H

#include <jansson.h>

#include "cli/cli.h"
#include "cli/text.h"

/* Say in which form all is printed. Returns: an empty object, for the answer of
 * the call. */
json_t *cli_out_begin(const struct cli_call *call);

/* An empty object. */
json_t *cli_out_open(void);

/* Print an object, if it has members: the call's answer as JSON on several
 * lines, any other on a single one; free it, and flush the output. */
void cli_out_close(const struct cli_call *call, json_t *out);

/* Set the member name. cli_out_set takes over the value. */
void cli_out_set(json_t *out, const char *name, json_t *value);
void cli_out_number(json_t *out, const char *name, uint64_t number);
void cli_out_flag(json_t *out, const char *name, bool flag);

/* A number; null if it is not known, or if there is none. */
void cli_out_maybe(json_t *out, const char *name, bool is_known,
                   long long number);

/* The bytes as a string if they are UTF-8; else the member name_base64. For a
 * text: escaped, and cut if they are many. */
void cli_out_bytes(json_t *out, const char *name, struct shed_bytes bytes);

/* A text, which is ASCII if nobody else has made it; null if it is NULL. */
void cli_out_text(json_t *out, const char *name, const char *text);

/* Make an object, or a list, the member name; add an object to a list. Returns:
 * what was made. */
json_t *cli_out_object(json_t *out, const char *name);
json_t *cli_out_list(json_t *out, const char *name);
json_t *cli_out_item(json_t *list);

/* Add a sentence to the member hints. */
void cli_out_hint(json_t *out, const char *text);

#endif
