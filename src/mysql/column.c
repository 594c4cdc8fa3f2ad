/*
 * Key columns. Its one invariant: if a key does not fit, no row of such a
 * column can have exactly these bytes as its key; so the key is absent,
 * whatever the table contains.
 */
#include "mysql/column.h"

#include <assert.h>
#include <stdio.h>

#include "base/error.h"

enum { DECIMAL = 10, MOST_BITS = 64 };

/* The values of YEAR, besides 0. The server takes integers below 100 for years
 * of this or the last century (MySQL manual, "The YEAR Type"). */
enum { YEAR_FIRST = 1901, YEAR_LAST = 2155 };

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

static void set_datetime(struct shed_mysql_column *column,
                         const MYSQL_FIELD *field)
{
    enum { MICROSECONDS = 6 };

    if (field->decimals > MICROSECONDS)
        return;
    column->kind = SHED_MYSQL_DATETIME;
    column->decimals = field->decimals;
}

void shed_mysql_column_read(const MYSQL_FIELD *field,
                            struct shed_mysql_column *out)
{
    enum { TINY_BITS = 8, SHORT_BITS = 16, INT24_BITS = 24, LONG_BITS = 32 };

    *out = (struct shed_mysql_column){.type = field->type,
                                      .is_unsigned =
                                          (field->flags & UNSIGNED_FLAG) != 0};
    if (field->name != NULL)
        (void)snprintf(out->name, sizeof(out->name), "%s", field->name);
    switch (field->type) {
    case MYSQL_TYPE_TINY:
        set_bits(out, TINY_BITS);
        break;
    case MYSQL_TYPE_SHORT:
    case MYSQL_TYPE_YEAR:
        set_bits(out, SHORT_BITS);
        break;
    case MYSQL_TYPE_INT24:
        set_bits(out, INT24_BITS);
        break;
    case MYSQL_TYPE_LONG:
        set_bits(out, LONG_BITS);
        break;
    case MYSQL_TYPE_LONGLONG:
        set_bits(out, MOST_BITS);
        break;
    case MYSQL_TYPE_DECIMAL:
    case MYSQL_TYPE_NEWDECIMAL:
        set_digits(out, field);
        break;
    case MYSQL_TYPE_DATE:
    case MYSQL_TYPE_NEWDATE:
        out->kind = SHED_MYSQL_DATE;
        break;
    case MYSQL_TYPE_DATETIME:
        set_datetime(out, field);
        break;
    case MYSQL_TYPE_VARCHAR:
    case MYSQL_TYPE_VAR_STRING:
    case MYSQL_TYPE_STRING:
    case MYSQL_TYPE_ENUM:
    case MYSQL_TYPE_SET:
    case MYSQL_TYPE_TINY_BLOB:
    case MYSQL_TYPE_BLOB:
    case MYSQL_TYPE_MEDIUM_BLOB:
    case MYSQL_TYPE_LONG_BLOB:
        out->kind = SHED_MYSQL_BYTES;
        break;
    default:
        break;
    }
}

bool shed_mysql_column_is_same(const struct shed_mysql_column *a,
                               const struct shed_mysql_column *b)
{
    return a->type == b->type && a->is_unsigned == b->is_unsigned &&
           a->greatest == b->greatest && a->decimals == b->decimals;
}

bool shed_mysql_column_is_integer(const struct shed_mysql_column *column)
{
    return column->kind == SHED_MYSQL_NUMBER ||
           column->kind == SHED_MYSQL_DIGITS;
}

enum shed_code shed_mysql_column_check(const struct shed_mysql_column *column,
                                       struct shed_error *err)
{
    if (column->kind != SHED_MYSQL_OTHER)
        return SHED_OK;
    return shed_fail(err, SHED_ESOURCE,
                     "MySQL: the query's first column, \"%s\", must be the "
                     "key, but its type suits no key: select an integer, a "
                     "DECIMAL without fraction, text, binary, DATE or DATETIME",
                     column->name);
}

/* -------------------------------------------------------------------- keys */

bool shed_mysql_column_holds_integer(const struct shed_mysql_column *column,
                                     const struct shed_mysql_integer *key)
{
    if (!key->is_unsigned)
        return ~key->bits + 1 <= column->least;
    if (column->type == MYSQL_TYPE_YEAR && key->bits != 0)
        return key->bits >= YEAR_FIRST && key->bits <= YEAR_LAST;
    return key->bits <= column->greatest;
}

/* The number that the digit at "at" and the one before it make. */
static unsigned last_two(const char *at)
{
    return (unsigned)((at[-1] - '0') * DECIMAL + (at[0] - '0'));
}

/* Compare a text with a form of the same size, in which a small letter means a
 * digit. For a number of two digits, the letter determines its maximum. */
static bool has_form(const char *text, const char *form, size_t size)
{
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

bool shed_mysql_column_holds_string(const struct shed_mysql_column *column,
                                    const void *key, size_t size)
{
    static const char form[] = "yyyy-mm-dd hh:ss:ss.ffffff";
    size_t wanted;

    if (column->kind == SHED_MYSQL_DATE)
        wanted = sizeof("yyyy-mm-dd") - 1;
    else if (column->kind == SHED_MYSQL_DATETIME)
        wanted = sizeof("yyyy-mm-dd hh:ss:ss") - 1 +
                 (column->decimals > 0 ? 1 + column->decimals : 0);
    else
        return true;
    assert(wanted < sizeof(form));
    return size == wanted && has_form(key, form, size);
}
