/*
 * Key columns. Its one invariant: if a key does not fit, no row of such a
 * column can have exactly these bytes as its key; so the key is absent,
 * whatever the table contains.
 */
#include "mysql/column.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* How the server writes times; see has_form. */
#define DATE_FORM "yyyy-mm-dd"
#define SECONDS_FORM DATE_FORM " hh:ss:ss"
#define TIME_FORM SECONDS_FORM ".ffffff"

enum {
    DECIMAL = 10,
    INTEGER_DIGITS = 20, /* the most that 64 bits need */
    BINARY_CHARSET = 63  /* the number by which metadata say "bytes" */
};

/* ------------------------------------------------------------------- types */

/* The types that suit keys. size: of a TIME in bytes, with its end and without
 * decimals; else 0. */
static const struct {
    enum enum_field_types type;
    enum shed_mysql_kind kind;
    unsigned size;
} types[] = {
    {MYSQL_TYPE_TINY, SHED_MYSQL_INTEGER, 0},
    {MYSQL_TYPE_SHORT, SHED_MYSQL_INTEGER, 0},
    {MYSQL_TYPE_INT24, SHED_MYSQL_INTEGER, 0},
    {MYSQL_TYPE_LONG, SHED_MYSQL_INTEGER, 0},
    {MYSQL_TYPE_LONGLONG, SHED_MYSQL_INTEGER, 0},
    {MYSQL_TYPE_DECIMAL, SHED_MYSQL_DECIMAL, 0},
    {MYSQL_TYPE_NEWDECIMAL, SHED_MYSQL_DECIMAL, 0},
    {MYSQL_TYPE_DATE, SHED_MYSQL_TIME, sizeof(DATE_FORM)},
    {MYSQL_TYPE_NEWDATE, SHED_MYSQL_TIME, sizeof(DATE_FORM)},
    {MYSQL_TYPE_DATETIME, SHED_MYSQL_TIME, sizeof(SECONDS_FORM)},
    {MYSQL_TYPE_VARCHAR, SHED_MYSQL_BYTES, 0},
    {MYSQL_TYPE_VAR_STRING, SHED_MYSQL_BYTES, 0},
    {MYSQL_TYPE_STRING, SHED_MYSQL_BYTES, 0},
    {MYSQL_TYPE_ENUM, SHED_MYSQL_BYTES, 0},
    {MYSQL_TYPE_SET, SHED_MYSQL_BYTES, 0},
    {MYSQL_TYPE_TINY_BLOB, SHED_MYSQL_BYTES, 0},
    {MYSQL_TYPE_BLOB, SHED_MYSQL_BYTES, 0},
    {MYSQL_TYPE_MEDIUM_BLOB, SHED_MYSQL_BYTES, 0},
    {MYSQL_TYPE_LONG_BLOB, SHED_MYSQL_BYTES, 0},
};

/* Set what a column of this kind can hold. */
static void set_kind(struct shed_mysql_column *column, const MYSQL_FIELD *field,
                     enum shed_mysql_kind kind, unsigned size)
{
    unsigned fraction = field->decimals > 0 ? 1 + field->decimals : 0;

    column->is_unsigned = (field->flags & UNSIGNED_FLAG) != 0;
    if (kind == SHED_MYSQL_TIME)
        column->size = size - 1 + fraction;
    else if (kind == SHED_MYSQL_DECIMAL) /* the length counts the sign, too */
        column->size = field->length - !column->is_unsigned;
    if (kind == SHED_MYSQL_TIME ? column->size < sizeof(TIME_FORM)
                                : kind != SHED_MYSQL_DECIMAL || fraction == 0)
        column->kind = kind;
}

enum shed_code shed_mysql_column_read(const MYSQL_FIELD *field,
                                      struct shed_mysql_column *out,
                                      struct shed_error *err)
{
    *out = (struct shed_mysql_column){.kind = SHED_MYSQL_OTHER};
    for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
        if (types[i].type == field->type)
            set_kind(out, field, types[i].kind, types[i].size);
    if (out->kind != SHED_MYSQL_OTHER)
        return SHED_OK;
    return shed_fail(err, SHED_ESOURCE,
                     "MySQL: the query's first column, \"%s\", must be the "
                     "key, but its type suits no key: select an integer, a "
                     "DECIMAL without fraction, text, binary, DATE or DATETIME",
                     field->name);
}

bool shed_mysql_column_is_same(const struct shed_mysql_column *a,
                               const struct shed_mysql_column *b)
{
    return a->kind == b->kind && a->is_unsigned == b->is_unsigned &&
           a->size == b->size;
}

bool shed_mysql_column_is_integer(const struct shed_mysql_column *column)
{
    return column->kind == SHED_MYSQL_INTEGER ||
           column->kind == SHED_MYSQL_DECIMAL;
}

/* -------------------------------------------------------------------- keys */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Whether it is an integer of at most so many digits. */
static bool is_integer(const char *text, size_t size, bool is_unsigned,
                       size_t digits_max)
{
    bool is_negative = size > 0 && text[0] == '-';
    const char *digits = text + is_negative;
    size_t count = size - is_negative;

    if (count == 0 || count > digits_max || (is_negative && is_unsigned) ||
        (digits[0] == '0' && (count > 1 || is_negative)))
        return false;
    while (count > 0 && is_digit(digits[count - 1]))
        count--;
    return count == 0;
}

/* Read an integer. Returns: false if it has more than 64 bits. */
static bool read_64_bits(const char *text, size_t size, bool is_unsigned,
                         uint64_t *number)
{
    char digits[1 + INTEGER_DIGITS + 1];

    memcpy(digits, text, size);
    digits[size] = '\0';
    errno = 0;
    *number = is_unsigned ? strtoull(digits, NULL, DECIMAL)
                          : (uint64_t)strtoll(digits, NULL, DECIMAL);
    return errno == 0;
}

/* Whether a text looks like a time. A small letter of the form means a
 * digit. */
static bool has_form(const char *text, size_t size)
{
    static const char form[] = TIME_FORM;

    for (size_t at = 0; at < size; at++) {
        bool is_letter = form[at] >= 'a' && form[at] <= 'z';
        if (is_letter ? !is_digit(text[at]) : text[at] != form[at])
            return false;
    }
    return true;
}

bool shed_mysql_column_holds(const struct shed_mysql_column *column,
                             struct shed_bytes key, uint64_t *number)
{
    switch (column->kind) {
    case SHED_MYSQL_TIME:
        return key.size == column->size && has_form(key.data, key.size);
    case SHED_MYSQL_INTEGER:
        return is_integer(key.data, key.size, column->is_unsigned,
                          INTEGER_DIGITS) &&
               read_64_bits(key.data, key.size, column->is_unsigned, number);
    case SHED_MYSQL_DECIMAL:
        return is_integer(key.data, key.size, column->is_unsigned,
                          column->size);
    case SHED_MYSQL_BYTES:
    case SHED_MYSQL_OTHER:
        break;
    }
    return true;
}
