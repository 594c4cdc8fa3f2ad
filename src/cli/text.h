/* Bytes, times and sizes as an operator reads them, and as JSON has them. */
#ifndef CLI_TEXT_H
#define CLI_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <jansson.h>

/* Room for a duration or a size. */
#define CLI_TEXT_BYTES 48

/* Write bytes so that a terminal shows them and nothing else happens: printable
 * ASCII as it is, a backslash doubled, all other bytes as \xNN; after limit
 * bytes "..." follows. */
void cli_print_escaped(FILE *out, const void *bytes, size_t size, size_t limit);

/* Print a text that is printable ASCII, from a column on, and a newline: lines
 * are broken at spaces, so that they have at most 80 columns, and further lines
 * begin at the column indent. */
void cli_print_wrapped(const char *text, size_t column, size_t indent);

/* Bytes as cli_print_escaped writes them, whole, as a text to be freed. */
char *cli_escape(const void *bytes, size_t size);

/* Undo it, in place. Returns: the size; SIZE_MAX where a backslash is followed
 * by neither another one nor x and two digits. */
size_t cli_unescape(char *text);

/* Set object[name] to the bytes as a string if they are UTF-8, else
 * object[name_base64]. */
void cli_json_set_bytes(json_t *object, const char *name, const void *bytes,
                        size_t size);

/* A number, or null where there is none (below 0). */
json_t *cli_json_ms(long long ms);

/* "12 ms", "3.2 s", "4 min 56 s", "2 h 10 min", "3 d 4 h". */
const char *cli_duration(char text[CLI_TEXT_BYTES], uint64_t ms);

/* "812 bytes", "4.0 KiB". */
const char *cli_size(char text[CLI_TEXT_BYTES], uint64_t bytes);

/* "2026-11-22 06:50:15.123 UTC" */
const char *cli_date(char text[CLI_TEXT_BYTES], uint64_t ms);

/* size bytes as twice as many hexadecimal digits, terminated. */
const char *cli_hex(char *text, const unsigned char *bytes, size_t size);

/* A line "  name      value" whose value the caller prints. */
void cli_field(const char *name);
__attribute__((format(printf, 2, 3))) void cli_line(const char *name,
                                                    const char *format, ...);

#endif
