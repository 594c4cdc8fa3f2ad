/* Bytes, times and sizes as text for operators. */
#ifndef CLI_TEXT_H
#define CLI_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <snowshed/snowshed.h>

/* A text that is returned by value: cli_size(4096).at is "4.0 KiB" until the
 * end of the expression. There is room for the longest key in Redis, escaped;
 * what is longer is cut. */
struct cli_text {
    char at[4416];
};

/* Make one, as printf does. */
__attribute__((format(printf, 1, 2))) struct cli_text
cli_format(const char *format, ...);

bool cli_begins(const char *text, const char *with);

/* Whether both are there, and are the same bytes. */
bool cli_are_same(struct shed_bytes a, struct shed_bytes b);

/* Print a text of printable ASCII, and a newline. It begins at this column, and
 * so do its further lines: they are broken at spaces to fit in 80 columns. */
void cli_print_wrapped(const char *text, size_t begin);

/* Bytes in a form that is safe for a terminal, that of shed_escape. */
struct cli_text cli_escape(struct shed_bytes bytes);

/* Escaped bytes as a word that a shell passes on as it is and that --escaped
 * reads. */
struct cli_text cli_word(const char *escaped);

/* Undo the escaping in place. Returns: the size; SIZE_MAX if a backslash is
 * followed by neither another one nor x and two digits. */
size_t cli_unescape(char *text);

/* "12 ms", "3.2 s", "4 min 56 s", "2 h 10 min", "3 d 4 h". */
struct cli_text cli_duration(uint64_t ms);

/* "812 bytes", "4.0 KiB". */
struct cli_text cli_size(uint64_t bytes);

/* "2026-11-22 06:50:15.123 UTC" */
struct cli_text cli_date(uint64_t ms);

/* Up to 127 bytes as twice as many hexadecimal digits. */
struct cli_text cli_hex(const unsigned char *bytes, size_t size);

#endif
