/* wire: the bytes of a command are those that hiredis would send. */
#include "wire/wire.h"

#include <hiredis/hiredis.h>
#include <stdlib.h>
#include <string.h>

#include "support/testing.h"

#define ROOM_BYTES 70000

static char room[ROOM_BYTES];

static void check_command(struct shed_buffer *buffer,
                          const struct shed_args *args)
{
    struct shed_error err;
    char *expected = NULL;
    size_t before = buffer->size;
    long long size = redisFormatCommandArgv(
        &expected, args->count, (const char **)(size_t)args->at, args->size);

    ck_assert_int_gt(size, 0);
    ck_assert_int_eq(shed_buffer_append(buffer, args, 0, &err), SHED_OK);
    ck_assert_uint_eq(buffer->size - before, (size_t)size);
    ck_assert_mem_eq(buffer->at + before, expected, (size_t)size);
    redisFreeCommand(expected);
}

TEST(a_command_is_what_hiredis_would_send)
{
    static const size_t sizes[] = {0,   1,    9,    10,   11,    99,
                                   100, 1000, 1023, 9999, 10000, 65536};
    struct shed_buffer buffer = {0};

    for (size_t i = 0; i < ROOM_BYTES; i++)
        room[i] = (char)(i * 7);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        struct shed_args args = {0};

        shed_args_add_text(&args, "SET");
        shed_args_add(&args, room, sizes[i]);
        check_command(&buffer, &args);
        while (args.count < SHED_ARGS_MAX)
            shed_args_add(&args, room + i, sizes[i]);
        check_command(&buffer, &args);
    }
    shed_buffer_fini(&buffer);
}

TEST(a_command_that_is_too_long_leaves_nothing)
{
    struct shed_buffer buffer = {0};
    struct shed_args args = {0};
    struct shed_error err;

    shed_args_add_text(&args, "PING");
    check_command(&buffer, &args);
    args.size[args.count] = SHED_BUFFER_MAX_BYTES;
    args.at[args.count++] = room;
    ck_assert_int_eq(shed_buffer_append(&buffer, &args, 0, &err), SHED_EBUSY);
    ck_assert_uint_eq(buffer.size, strlen("*1\r\n$4\r\nPING\r\n"));
    shed_buffer_fini(&buffer);
}

TEST(numbers_have_all_their_digits)
{
    static const struct {
        uint64_t number;
        const char *digits;
    } rows[] = {{0, "0"},
                {9, "9"},
                {10, "10"},
                {1000000, "1000000"},
                {UINT64_MAX, "18446744073709551615"}};
    char digits[SHED_DIGITS];

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        shed_write_digits(digits, rows[i].number);
        ck_assert_str_eq(digits, rows[i].digits);
    }
}

int main(void)
{
    return run_tests("wire");
}
