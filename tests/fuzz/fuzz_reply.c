/*
 * Any bytes as what a server sends, in pieces of any length: the bounds of
 * parser.c hold before it allocates, they do not depend on where the pieces
 * end, and every question of reply.h and of a connection's set-up has an
 * answer. The first byte is the length of the pieces.
 */
#include <string.h>

#include "fuzz/stream.h"
#include "wire/address.h"
#include "wire/setup.h"

#define DEPTH_MAX 16
/* Of one reply: what parser.c admits. */
#define BYTES_MAX SHED_PARSER_MAX_BYTES

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static size_t elements_of(const struct shed_reply *reply)
{
    size_t count = shed_reply_count(reply), all = count;

    for (size_t i = 0; i < count; i++)
        all += elements_of(shed_reply_at(reply, i));
    check(shed_reply_at(reply, count) == NULL);
    return all;
}

static void check_text(const struct shed_reply *reply)
{
    const char *text = shed_reply_error(reply);
    size_t size = 0;
    const char *string = shed_reply_bytes(reply, &size);

    check(text == NULL || string == NULL);
    check(string == NULL || (size < BYTES_MAX && string[size] == '\0'));
    check(text == NULL || shed_reply_begins(reply, ""));
    if (text == NULL)
        check(!shed_reply_is_no_primary(reply));
    check(shed_reply_trouble(reply) <= SHED_TROUBLE_DENIED);
    check(shed_reply_code(reply) == SHED_EDENIED ||
          shed_reply_code(reply) == SHED_EREDIS);
    if (shed_reply_is_other_role(reply))
        check(shed_reply_count(reply) > 0);
    (void)shed_reply_integer(reply);
    (void)shed_reply_is_nil(reply);
}

static void check_reply(struct shed_reply *reply)
{
    struct shed_reply *first;

    check(elements_of(reply) <= SHED_PARSER_MAX_ELEMENTS);
    check_text(reply);
    for (size_t i = 0; i < shed_reply_count(reply); i++)
        check_text(shed_reply_at(reply, i));
    first = shed_reply_take(reply, 0);
    check(shed_reply_at(reply, 0) == NULL);
    shed_reply_free(first);
}

/* How many replies come out of the stream, and whether it ends the
 * connection. */
static size_t read_all(const uint8_t *bytes, size_t size, size_t piece,
                       bool *is_lost)
{
    struct shed_reply *reply;
    struct stream stream;
    size_t count = 0;

    stream_open(&stream);
    for (size_t at = 0; at < size; at += piece) {
        stream_feed(&stream, bytes + at, size - at < piece ? size - at : piece);
        while ((reply = stream_next(&stream)) != NULL) {
            check_reply(reply);
            shed_reply_free(reply);
            count++;
        }
    }
    *is_lost = stream.is_lost;
    stream_close(&stream);
    return count;
}

/* As the answers to AUTH, SELECT, ROLE and TIME. */
static void set_up(const uint8_t *bytes, size_t size)
{
    struct shed_address *address = NULL;
    struct shed_error err = {0};
    enum shed_code code = SHED_OK;
    struct shed_reply *reply;
    struct shed_buffer commands = {0};
    struct shed_setup setup;
    struct stream stream;

    check(shed_address_create("redis://u:secret@127.0.0.1/3", &address, &err) ==
          SHED_OK);
    stream_open(&stream);
    stream_feed(&stream, bytes, size);
    check(shed_setup_begin(&setup, address, 1, &commands, &err) == SHED_OK);
    shed_buffer_fini(&commands);
    while (code == SHED_OK && !shed_setup_is_done(&setup) &&
           (reply = stream_next(&stream)) != NULL) {
        check(shed_setup_awaited(&setup) != NULL);
        code = shed_setup_hear(&setup, reply, 1, &err);
        check(code == SHED_OK || err.code == code);
        shed_reply_free(reply);
    }
    stream_close(&stream);
    shed_address_unref(address);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    bool is_lost, is_lost_whole;
    size_t count, whole;

    if (size < 2)
        return 0;
    count = read_all(bytes + 1, size - 1, bytes[0] % 16 + 1, &is_lost);
    whole = read_all(bytes + 1, size - 1, size, &is_lost_whole);
    check(is_lost == is_lost_whole && whole == count);
    set_up(bytes + 1, size - 1);
    return 0;
}
