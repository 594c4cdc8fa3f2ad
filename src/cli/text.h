/* Bytes, times and sizes as text for operators, and as JSON. */
#ifndef CLI_TEXT_H
#define CLI_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <jansson.h>

/* Room for a duration or a size. */
#define CLI_TEXT_BYTES 48

/* Write bytes in a form that is safe for a terminal, that of shed_escape;
 * "..." after limit bytes. */
void cli_print_escaped(FILE *out, const void *bytes, size_t size, size_t limit);

/* Print a text of printable ASCII, beginning at a column, and a newline. Lines
 * are broken at spaces to fit in 80 columns; further lines begin at the column
 * indent. */
void cli_print_wrapped(const char *text, size_t column, size_t indent);

/* All bytes in the form of cli_print_escaped, as a text to be freed. */
char *cli_escape(const void *bytes, size_t size);

/* The bytes as a word that a shell passes on as it is and that --escaped reads;
 * to be freed. */
char *cli_word(const void *bytes, size_t size);

/* Undo the escaping in place. Returns: the size; SIZE_MAX if a backslash is
 * followed by neither another one nor x and two digits. */
size_t cli_unescape(char *text);

/* Set object[name] to the bytes as a string if they are UTF-8, else
 * object[name_base64]. */
void cli_json_set_bytes(json_t *object, const char *name, const void *bytes,
                        size_t size);

/* A number, or null if it is negative, which means that there is none. */
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
