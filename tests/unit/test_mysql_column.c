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
    uint64_t number;

    return shed_mysql_column_holds(c, shed_str(key), &number);
}

/* ----------------------------------------------------------------- integers */

static const struct {
    const char *key;
    bool is_signed, is_unsigned, is_decimal; /* held by a column of this kind */
} integers[] = {
    {"0", true, true, true},
    {"42", true, true, true},
    {"-7", true, false, true},
    {"9223372036854775807", true, true, true},
    {"-9223372036854775808", true, false, true},
    {"9223372036854775808", false, true, true},
    {"-9223372036854775809", false, false, true},
    {"18446744073709551615", false, true, true},
    {"18446744073709551616", false, false, true},
    {"184467440737095516150", false, false, true},
    {"1234567890123456789012", false, false, false},
    /* what a server would not write */
    {"", false, false, false},
    {"-", false, false, false},
    {"+1", false, false, false},
    {"042", false, false, false},
    {"00", false, false, false},
    {"-0", false, false, false},
    {"-07", false, false, false},
    {" 1", false, false, false},
    {"1 ", false, false, false},
    {"0x1", false, false, false},
    {"1.0", false, false, false},
    {"abc", false, false, false},
    {"--1", false, false, false},
    {"1-", false, false, false},
    {"12a", false, false, false},
    {"\xd9\xa1", false, false, false},
};

TEST_EACH(integers_are_held_as_the_server_writes_them, 0, COUNT_OF(integers))
{
    const struct {
        enum enum_field_types type;
        unsigned flags, length;
        bool is_held;
    } columns[] = {
        {MYSQL_TYPE_LONG, 0, 11, integers[_i].is_signed},
        {MYSQL_TYPE_LONGLONG, UNSIGNED_FLAG, 20, integers[_i].is_unsigned},
        {MYSQL_TYPE_NEWDECIMAL, 0, 22, integers[_i].is_decimal}};

    for (size_t i = 0; i < COUNT_OF(columns); i++) {
        struct shed_mysql_column c =
            column(columns[i].type, columns[i].flags, columns[i].length, 0);
        ck_assert(is_fit(&c, true));
        ck_assert_int_eq(holds(&c, integers[_i].key), columns[i].is_held);
    }
}

TEST(integers_are_read_in_both_signs_and_as_far_as_their_size)
{
    struct shed_mysql_column c = column(MYSQL_TYPE_LONGLONG, 0, 20, 0);
    uint64_t number = 0;

    ck_assert(!shed_mysql_column_holds(&c, shed_bytes("4\0002", 3), &number));
    ck_assert(!shed_mysql_column_holds(&c, shed_bytes("42", 3), &number));
    ck_assert(shed_mysql_column_holds(&c, shed_bytes("42", 1), &number));
    ck_assert_uint_eq(number, 4);
    ck_assert(shed_mysql_column_holds(&c, shed_str("-7"), &number));
    ck_assert_uint_eq(number, (uint64_t)-7);
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
    {MYSQL_TYPE_DATE, 0, "2024-2-29", false},
    {MYSQL_TYPE_DATE, 0, "20240229", false},
    {MYSQL_TYPE_DATE, 0, "2024/02/29", false},
    {MYSQL_TYPE_DATE, 0, "2024-02-29 00:00:00", false},
    {MYSQL_TYPE_DATE, 0, " 2024-02-29", false},
    {MYSQL_TYPE_DATE, 0, "2024-02-2a", false},
    {MYSQL_TYPE_DATE, 0, "abc", false},
    {MYSQL_TYPE_DATETIME, 0, "2024-02-29 23:59:59", true},
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

    ck_assert(is_fit(&c, true));
    ck_assert(!is_fit(&c, false));
    c = column(MYSQL_TYPE_VAR_STRING, 0, 80, 0);
    ck_assert(is_fit(&c, false));
    ck_assert(!is_fit(&c, true));
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
