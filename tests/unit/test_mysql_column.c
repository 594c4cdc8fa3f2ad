/* Key columns without a server: which keys each type can hold. */
#include <string.h>

#include "mysql/column.h"
#include "support/testing.h"

static struct shed_error column_error; /* of the newest */

static struct shed_mysql_column column(enum enum_field_types type,
                                       unsigned flags, unsigned long length,
                                       unsigned decimals)
{
    static char name[] = "c";
    MYSQL_FIELD field = {.name = name,
                         .type = type,
                         .flags = flags,
                         .length = length,
                         .decimals = decimals};
    struct shed_mysql_column out;

    column_error.code = SHED_OK;
    (void)!shed_mysql_column_read(&field, &out, &column_error);
    return out;
}

/* Whether the newest column has keys, of this kind. */
static bool is_fit(const struct shed_mysql_column *c, bool is_integer)
{
    return column_error.code == SHED_OK &&
           shed_mysql_column_is_integer(c) == is_integer;
}

static bool holds(const struct shed_mysql_column *c, const char *key)
{
    struct shed_mysql_integer number;

    return shed_mysql_column_holds(c, key, strlen(key), &number);
}

/* ----------------------------------------------------------------- integers */

static const struct {
    enum enum_field_types type;
    unsigned flags;
    unsigned long length;
    const char *below, *least, *greatest, *above; /* NULL: no key is */
} ranges[] = {
    {MYSQL_TYPE_TINY, 0, 4, "-129", "-128", "127", "128"},
    {MYSQL_TYPE_TINY, UNSIGNED_FLAG, 3, "-1", "0", "255", "256"},
    {MYSQL_TYPE_SHORT, 0, 6, "-32769", "-32768", "32767", "32768"},
    {MYSQL_TYPE_SHORT, UNSIGNED_FLAG, 5, "-1", "0", "65535", "65536"},
    {MYSQL_TYPE_INT24, 0, 9, "-8388609", "-8388608", "8388607", "8388608"},
    {MYSQL_TYPE_INT24, UNSIGNED_FLAG, 8, "-1", "0", "16777215", "16777216"},
    {MYSQL_TYPE_LONG, 0, 11, "-2147483649", "-2147483648", "2147483647",
     "2147483648"},
    {MYSQL_TYPE_LONG, UNSIGNED_FLAG, 10, "-1", "0", "4294967295", "4294967296"},
    {MYSQL_TYPE_LONGLONG, 0, 20, NULL, "-9223372036854775808",
     "9223372036854775807", "9223372036854775808"},
    {MYSQL_TYPE_LONGLONG, UNSIGNED_FLAG, 20, "-1", "0", "18446744073709551615",
     NULL},
    {MYSQL_TYPE_NEWDECIMAL, 0, 2, "-10", "-9", "9", "10"},
    {MYSQL_TYPE_NEWDECIMAL, UNSIGNED_FLAG, 1, "-1", "0", "9", "10"},
    {MYSQL_TYPE_NEWDECIMAL, 0, 11, "-10000000000", "-9999999999", "9999999999",
     "10000000000"},
    {MYSQL_TYPE_NEWDECIMAL, 0, 20, NULL, "-9223372036854775808",
     "9999999999999999999", "10000000000000000000"},
    {MYSQL_TYPE_NEWDECIMAL, UNSIGNED_FLAG, 20, "-1", "0",
     "18446744073709551615", NULL},
    {MYSQL_TYPE_NEWDECIMAL, 0, 66, NULL, "-9223372036854775808",
     "18446744073709551615", NULL},
};

TEST_EACH(integers_reach_as_far_as_the_type, 0, COUNT_OF(ranges))
{
    struct shed_mysql_column c =
        column(ranges[_i].type, ranges[_i].flags, ranges[_i].length, 0);

    ck_assert(is_fit(&c, true));
    ck_assert(holds(&c, ranges[_i].least));
    ck_assert(holds(&c, ranges[_i].greatest));
    ck_assert(ranges[_i].below == NULL || !holds(&c, ranges[_i].below));
    ck_assert(ranges[_i].above == NULL || !holds(&c, ranges[_i].above));
}

/* -------------------------------------------------------------------- times */

static const struct {
    enum enum_field_types type;
    unsigned decimals;
    const char *key;
    bool is_held;
} times[] = {
    {MYSQL_TYPE_DATE, 0, "2024-02-29", true},
    {MYSQL_TYPE_DATE, 0, "0000-00-00", true},
    {MYSQL_TYPE_DATE, 0, "9999-12-31", true},
    {MYSQL_TYPE_DATE, 0, "2024-13-01", false},
    {MYSQL_TYPE_DATE, 0, "2024-12-32", false},
    {MYSQL_TYPE_DATE, 0, "2024-2-29", false},
    {MYSQL_TYPE_DATE, 0, "20240229", false},
    {MYSQL_TYPE_DATE, 0, "2024/02/29", false},
    {MYSQL_TYPE_DATE, 0, "2024-02-29 00:00:00", false},
    {MYSQL_TYPE_DATE, 0, " 2024-02-29", false},
    {MYSQL_TYPE_DATE, 0, "2024-02-2a", false},
    {MYSQL_TYPE_DATE, 0, "abc", false},
    {MYSQL_TYPE_DATETIME, 0, "2024-02-29 23:59:59", true},
    {MYSQL_TYPE_DATETIME, 0, "2024-02-29 24:00:00", false},
    {MYSQL_TYPE_DATETIME, 0, "2024-02-29 23:60:00", false},
    {MYSQL_TYPE_DATETIME, 0, "2024-02-29 23:00:60", false},
    {MYSQL_TYPE_DATETIME, 0, "2024-02-29T23:00:00", false},
    {MYSQL_TYPE_DATETIME, 0, "2024-02-29 23:59:59.0", false},
    {MYSQL_TYPE_DATETIME, 0, "2024-02-29", false},
    {MYSQL_TYPE_DATETIME, 3, "2024-02-29 23:59:59.999", true},
    {MYSQL_TYPE_DATETIME, 3, "2024-02-29 23:59:59", false},
    {MYSQL_TYPE_DATETIME, 3, "2024-02-29 23:59:59.99", false},
    {MYSQL_TYPE_DATETIME, 6, "2024-02-29 23:59:59.999999", true},
};

TEST_EACH(times_are_held_as_the_server_writes_them, 0, COUNT_OF(times))
{
    struct shed_mysql_column c =
        column(times[_i].type, 0, 0, times[_i].decimals);

    ck_assert(is_fit(&c, false));
    ck_assert_msg(holds(&c, times[_i].key) == times[_i].is_held, "%s",
                  times[_i].key);
}

/* -------------------------------------------------------------------- kinds */

TEST(numbers_have_integer_keys_and_texts_have_strings)
{
    struct shed_mysql_column c = column(MYSQL_TYPE_LONG, 0, 11, 0);
    struct shed_mysql_integer number;

    ck_assert(is_fit(&c, true));
    ck_assert(!is_fit(&c, false));
    c = column(MYSQL_TYPE_VAR_STRING, 0, 80, 0);
    ck_assert(is_fit(&c, false));
    ck_assert(!is_fit(&c, true));
    ck_assert(shed_mysql_column_holds(&c, "\0\xff", 2, &number));
    (void)column(MYSQL_TYPE_DOUBLE, 0, 22, 31);
    ck_assert_int_eq(column_error.code, SHED_ESOURCE);
    ck_assert_ptr_nonnull(strstr(column_error.reason, "first column, \"c\""));
}

static const struct {
    enum enum_field_types type;
    unsigned flags, decimals;
} refused[] = {
    {MYSQL_TYPE_FLOAT, 0, 31},
    {MYSQL_TYPE_DOUBLE, 0, 31},
    {MYSQL_TYPE_NEWDECIMAL, 0, 2},
    {MYSQL_TYPE_NEWDECIMAL, ZEROFILL_FLAG | UNSIGNED_FLAG, 0},
    {MYSQL_TYPE_TIMESTAMP, 0, 0},
    {MYSQL_TYPE_YEAR, UNSIGNED_FLAG | ZEROFILL_FLAG, 0}, /* 42 is 2042 */
    {MYSQL_TYPE_TIME, 0, 0},
    {MYSQL_TYPE_DATETIME, 0, 31},
    {MYSQL_TYPE_BIT, UNSIGNED_FLAG, 0},
    {MYSQL_TYPE_GEOMETRY, 0, 0},
    {MYSQL_TYPE_JSON, 0, 0},
    {MYSQL_TYPE_NULL, 0, 0},
};

TEST_EACH(types_that_are_not_compared_as_they_are_written_are_refused, 0,
          COUNT_OF(refused))
{
    struct shed_mysql_column c =
        column(refused[_i].type, refused[_i].flags, 10, refused[_i].decimals);

    ck_assert(!is_fit(&c, false));
    ck_assert(!is_fit(&c, true));
}

int main(void)
{
    return run_tests("mysql_column");
}
