/*
 * Key columns. Its one invariant: if a key does not fit, no row of such a
 * column can have exactly these bytes as its key; so the key is absent,
 * whatever the table contains.
 */
#include "mysql/column.h"

#include <assert.h>

#include "base/error.h"

/* How the server writes times; see has_form. */
#define DATE_FORM "yyyy-mm-dd"
#define SECONDS_FORM DATE_FORM " hh:ss:ss"
#define TIME_FORM SECONDS_FORM ".ffffff"

enum { DECIMAL = 10, MOST_BITS = 64 };

/* ------------------------------------------------------------------- types */

/* An integer type of this many bits. */
static void set_bits(struct shed_mysql_column *column, unsigned bits)
{
    uint64_t all = UINT64_MAX >> (MOST_BITS - bits);

    assert(bits > 0 && bits <= MOST_BITS);
    column->kind = SHED_MYSQL_NUMBER;
    column->greatest = column->is_unsigned ? all : all / 2;
    column->least = column->is_unsigned ? 0 : all / 2 + 1;
}

/* A DECIMAL without fraction. Its length counts the digits, and the sign if it
 * can have one. With ZEROFILL its text has leading zeros, which keys do not
 * have. */
static void set_digits(struct shed_mysql_column *column,
                       const MYSQL_FIELD *field)
{
    unsigned long sign = column->is_unsigned ? 0 : 1, digits;
    uint64_t value = 0;

    if (field->decimals != 0 || field->length <= sign ||
        (field->flags & ZEROFILL_FLAG) != 0)
        return;
    digits = field->length - sign;
    for (; digits > 0 && value <= (UINT64_MAX - (DECIMAL - 1)) / DECIMAL;
         digits--)
        value = value * DECIMAL + (DECIMAL - 1);
    column->kind = SHED_MYSQL_DIGITS;
    column->greatest = digits > 0 ? UINT64_MAX : value;
    column->least = column->is_unsigned ? 0 : column->greatest;
}

/* The types that suit keys. size: of a NUMBER in bits; of a time in bytes, with
 * its end and without decimals; else 0. */
static const struct {
    enum enum_field_types type;
    enum shed_mysql_kind kind;
    unsigned size;
} types[] = {
    {MYSQL_TYPE_TINY, SHED_MYSQL_NUMBER, 8},
    {MYSQL_TYPE_SHORT, SHED_MYSQL_NUMBER, 16},
    {MYSQL_TYPE_INT24, SHED_MYSQL_NUMBER, 24},
    {MYSQL_TYPE_LONG, SHED_MYSQL_NUMBER, 32},
    {MYSQL_TYPE_LONGLONG, SHED_MYSQL_NUMBER, MOST_BITS},
    {MYSQL_TYPE_DECIMAL, SHED_MYSQL_DIGITS, 0},
    {MYSQL_TYPE_NEWDECIMAL, SHED_MYSQL_DIGITS, 0},
    {MYSQL_TYPE_DATE, SHED_MYSQL_BYTES, sizeof(DATE_FORM)},
    {MYSQL_TYPE_NEWDATE, SHED_MYSQL_BYTES, sizeof(DATE_FORM)},
    {MYSQL_TYPE_DATETIME, SHED_MYSQL_BYTES, sizeof(SECONDS_FORM)},
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

    if (kind == SHED_MYSQL_NUMBER)
        set_bits(column, size);
    else if (kind == SHED_MYSQL_DIGITS)
        set_digits(column, field);
    else if (size == 0)
        column->kind = kind;
    else if (size + fraction <= sizeof(TIME_FORM)) {
        column->kind = kind;
        column->time_size = size - 1 + fraction;
    }
}

enum shed_code shed_mysql_column_read(const MYSQL_FIELD *field,
                                      struct shed_mysql_column *out,
                                      struct shed_error *err)
{
    *out = (struct shed_mysql_column){.type = field->type,
                                      .is_unsigned =
                                          (field->flags & UNSIGNED_FLAG) != 0};
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
    return a->type == b->type && a->is_unsigned == b->is_unsigned &&
           a->greatest == b->greatest && a->time_size == b->time_size;
}

bool shed_mysql_column_is_integer(const struct shed_mysql_column *column)
{
    return column->kind == SHED_MYSQL_NUMBER ||
           column->kind == SHED_MYSQL_DIGITS;
}

/* -------------------------------------------------------------------- keys */

static bool holds_integer(const struct shed_mysql_column *column,
                          const struct shed_mysql_integer *key)
{
    if (!key->is_unsigned)
        return ~key->bits + 1 <= column->least;
    return key->bits <= column->greatest;
}

/* The number that the digit at "at" and the one before it make. */
static unsigned last_two(const char *at)
{
    return (unsigned)((at[-1] - '0') * DECIMAL + (at[0] - '0'));
}

/* Whether a text looks like a time. A small letter of the form means a digit;
 * for a number of two digits, the letter determines its maximum. */
static bool has_form(const char *text, size_t size)
{
    static const char form[] = TIME_FORM;
    static const struct {
        char letter;
        unsigned greatest;
    } parts[] = {{'m', 12}, {'d', 31}, {'h', 23}, {'s', 59}};

    for (size_t at = 0; at < size; at++) {
        bool is_digit = text[at] >= '0' && text[at] <= '9';
        bool is_letter = form[at] >= 'a' && form[at] <= 'z';
        if (is_letter ? !is_digit : text[at] != form[at])
            return false;
        for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
            if (form[at] == parts[i].letter && form[at - 1] == form[at] &&
                last_two(text + at) > parts[i].greatest)
                return false;
    }
    return true;
}

bool shed_mysql_column_holds(const struct shed_mysql_column *column,
                             const void *key, size_t size,
                             struct shed_mysql_integer *number)
{
    if (shed_mysql_column_is_integer(column))
        return shed_mysql_integer_parse(key, size, number) &&
               holds_integer(column, number);
    return column->time_size == 0 ||
           (size == column->time_size && has_form(key, size));
}
