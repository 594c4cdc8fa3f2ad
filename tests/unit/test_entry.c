/* entry: decode returns what encode was given, and rejects everything else,
 * byte by byte. */
#include "entry/entry.h"

#include <string.h>

#include "support/testing.h"

#define ROOM_BYTES 256

static const struct shed_bytes key = {"t:{k}", 5};

static const unsigned char nonce[SHED_ENTRY_VERSION_BYTES] = "0123456789abcde";

struct bytes {
    unsigned char at[ROOM_BYTES];
    size_t size;
};

/* As the scripts do: put the times between the parts, the payload and the tags
 * behind them. */
static struct bytes assemble(const struct shed_entry *entry)
{
    struct shed_entry_parts parts;
    struct bytes made = {.size = SHED_ENTRY_HEADER_BYTES + entry->payload_size};

    shed_entry_encode(key, entry, nonce, &parts);
    memcpy(made.at, parts.head, SHED_ENTRY_HEAD_BYTES);
    shed_entry_put_u64(made.at + 40, entry->written_ms);
    shed_entry_put_u64(made.at + 48, entry->until_ms);
    memcpy(made.at + 56, parts.tail, SHED_ENTRY_TAIL_BYTES);
    if (entry->payload_size > 0)
        memcpy(made.at + SHED_ENTRY_HEADER_BYTES, entry->payload,
               entry->payload_size);
    if (entry->tags_size > 0)
        memcpy(made.at + made.size, entry->tags, entry->tags_size);
    made.size += entry->tags_size;
    return made;
}

static struct shed_entry make_row(const char *text)
{
    return (struct shed_entry){.type = SHED_ENTRY_VALUE,
                               .flags = SHED_ENTRY_ROW_VERSION,
                               .cost_ms = 50,
                               .written_ms = 1700000000000,
                               .until_ms = 1700000060000,
                               .row_version = UINT64_MAX - 1,
                               .payload = (const unsigned char *)text,
                               .payload_size = strlen(text)};
}

static enum shed_entry_state decode(const struct bytes *bytes)
{
    struct shed_entry entry;

    return shed_entry_decode(key, bytes->at, bytes->size, &entry);
}

static const struct {
    enum shed_entry_type type;
    const char *payload;
} kinds[] = {{SHED_ENTRY_VALUE, "a row"},
             {SHED_ENTRY_NEGATIVE, ""},
             {SHED_ENTRY_FAILURE, "the table is gone"}};

/* But for the times, which the server writes. */
TEST_EACH(what_encode_makes_decode_returns, 0, COUNT_OF(kinds))
{
    struct shed_entry entry = make_row(kinds[_i].payload), out;
    struct shed_entry_tags tags;
    struct bytes bytes;

    entry.type = kinds[_i].type;
    bytes = assemble(&entry);
    shed_entry_put_u64(bytes.at + 40, 1);
    shed_entry_put_u64(bytes.at + 48, 2);
    ck_assert_int_eq(shed_entry_decode(key, bytes.at, bytes.size, &out),
                     SHED_ENTRY_OK);
    ck_assert_int_eq(out.type, entry.type);
    ck_assert_uint_eq(out.flags, entry.flags);
    ck_assert_uint_eq(out.cost_ms, entry.cost_ms);
    ck_assert_uint_eq(out.written_ms, 1);
    ck_assert_uint_eq(out.until_ms, 2);
    ck_assert_uint_eq(out.row_version, entry.row_version);
    ck_assert_uint_eq(out.payload_size, entry.payload_size);
    ck_assert_mem_eq(out.payload, entry.payload, entry.payload_size);
    shed_entry_tags(bytes.at, &tags);
    ck_assert_uint_eq(tags.position, 0);
    ck_assert_uint_eq(tags.tags_size, 0);
}

TEST(the_layout_is_the_documented_one)
{
    struct shed_entry row = make_row("a row");
    struct bytes bytes = assemble(&row);

    ck_assert_mem_eq(bytes.at, "\xf5shd\x02V\x00\x02", 8);
    ck_assert_mem_eq(bytes.at + 8, nonce, sizeof(nonce));
    ck_assert_mem_eq(bytes.at + 24, "\0\0\0\x05\0\0\0\x32", 8);
    /* as other hosts have written it */
    ck_assert_mem_eq(bytes.at + 32, "\x87\x41\x69\x36\x47\x92\xa5\x4d", 8);
    ck_assert_mem_eq(bytes.at + 56, "\xff\xff\xff\xff\xff\xff\xff\xfe", 8);
    ck_assert_mem_eq(bytes.at + 64, "a row", 5);
}

/* A row with a position and these tags; room is theirs. */
static struct shed_entry make_tagged(unsigned char *room, const char *first,
                                     const char *second)
{
    struct shed_entry row = make_row("a row");

    row.flags |= SHED_ENTRY_POSITION | SHED_ENTRY_TAGS;
    row.position = 0x0102030405060708;
    row.tags_size = shed_entry_add_tag(room, 0, first, strlen(first));
    row.tags_size =
        shed_entry_add_tag(room, row.tags_size, second, strlen(second));
    row.tags = room;
    return row;
}

TEST(a_position_and_tags_come_back)
{
    unsigned char room[SHED_ENTRY_TAGS_MAX_BYTES];
    struct shed_entry row = make_tagged(room, "red", "blue"), out;
    struct bytes bytes = assemble(&row);
    struct shed_entry_tags tags;
    size_t at = 0, size;

    ck_assert_int_eq(shed_entry_decode(key, bytes.at, bytes.size, &out),
                     SHED_ENTRY_OK);
    ck_assert_uint_eq(out.payload_size, 5);
    ck_assert_uint_eq(out.position, row.position);
    shed_entry_tags(bytes.at, &tags);
    ck_assert_uint_eq(tags.position, row.position);
    ck_assert_mem_eq(shed_entry_next_tag(tags.tags, tags.tags_size, &at, &size),
                     "red", 3);
    ck_assert_uint_eq(size, 3);
    ck_assert_mem_eq(shed_entry_next_tag(tags.tags, tags.tags_size, &at, &size),
                     "blue", 4);
    ck_assert_uint_eq(size, 4);
    ck_assert_ptr_null(
        shed_entry_next_tag(tags.tags, tags.tags_size, &at, &size));
}

TEST(the_layout_of_positions_and_tags_is_the_documented_one)
{
    unsigned char room[SHED_ENTRY_TAGS_MAX_BYTES];
    struct shed_entry row = make_tagged(room, "red", "blue");
    struct bytes bytes = assemble(&row);

    ck_assert_uint_eq(bytes.at[7], 2 | 8 | 16);
    ck_assert_mem_eq(bytes.at + 8, nonce, 8);
    ck_assert_mem_eq(bytes.at + 16, "\1\2\3\4\5\6\7\x08", 8);
    ck_assert_mem_eq(bytes.at + 24, "\0\0\0\5", 4);
    ck_assert_mem_eq(bytes.at + 64, "a row\0\x09\3red\4blue", 16);
    ck_assert_uint_eq(bytes.size, 64 + 16);
}

/* Their checksum is right, as if a faulty program had written them. */
TEST(tags_of_a_wrong_form_are_corrupt)
{
    static const struct {
        const char *bytes;
        size_t size;
    } wrong[] = {{"\0\4\4red", 6},   {"\0\5\3red", 6}, {"\0\3\3red", 6},
                 {"\0\5\0\3red", 7}, {"\0\0", 2},      {"\0", 1}};

    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        struct shed_entry row = make_row("a row");
        struct bytes bytes;

        row.flags |= SHED_ENTRY_TAGS;
        row.tags = (const unsigned char *)wrong[i].bytes;
        row.tags_size = wrong[i].size;
        bytes = assemble(&row);
        ck_assert_msg(decode(&bytes) == SHED_ENTRY_CORRUPT, "row %zu", i);
    }
}

/* Its checksum is right, as if a faulty program had written it. */
TEST(a_payload_where_there_is_none_is_corrupt)
{
    struct shed_entry entry = make_row("a row");
    struct bytes bytes;

    entry.type = SHED_ENTRY_NEGATIVE;
    bytes = assemble(&entry);
    ck_assert_int_eq(decode(&bytes), SHED_ENTRY_CORRUPT);
    entry.type = SHED_ENTRY_VALUE;
    entry.flags |= SHED_ENTRY_NULL;
    bytes = assemble(&entry);
    ck_assert_int_eq(decode(&bytes), SHED_ENTRY_CORRUPT);
    entry.payload_size = 0;
    bytes = assemble(&entry);
    ck_assert_int_eq(decode(&bytes), SHED_ENTRY_OK);
}

TEST(a_payload_with_our_magic_is_a_payload)
{
    struct shed_entry inner = make_row("in"), outer = make_row(""), out;
    struct bytes first = assemble(&inner), second;

    outer.payload = first.at;
    outer.payload_size = first.size;
    second = assemble(&outer);
    ck_assert_int_eq(shed_entry_decode(key, second.at, second.size, &out),
                     SHED_ENTRY_OK);
    ck_assert_uint_eq(out.payload_size, first.size);
    ck_assert_mem_eq(out.payload, first.at, first.size);
}

/* Every single bit, except those of the times, which the server writes. */
TEST_EACH(no_flipped_bit_passes_for_an_entry, 0, 2)
{
    unsigned char room[SHED_ENTRY_TAGS_MAX_BYTES];
    struct shed_entry row =
        _i == 0 ? make_row("a row") : make_tagged(room, "red", "blue");
    const struct bytes good = assemble(&row);

    ck_assert_int_eq(decode(&good), SHED_ENTRY_OK);
    for (size_t bit = 0; bit < good.size * 8; bit++) {
        struct bytes bad = good;

        if (bit / 8 >= 40 && bit / 8 < 56)
            continue;
        bad.at[bit / 8] ^= (unsigned char)(1 << bit % 8);
        ck_assert_msg(decode(&bad) != SHED_ENTRY_OK, "bit %zu", bit);
    }
}

/* As when a doubled reply reaches the next reader. */
TEST(the_entry_of_another_key_is_corrupt_whatever_it_says)
{
    static const struct shed_bytes others[] = {
        {"t:{l}", 5}, {"t:{k", 4}, {"t:{kk}", 6}, {"u:{k}", 5}, {"", 0}};
    static const enum shed_entry_type types[] = {
        SHED_ENTRY_VALUE, SHED_ENTRY_NEGATIVE, SHED_ENTRY_FAILURE};
    struct shed_entry entry = make_row(""), out;

    for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++) {
        struct bytes bytes;

        entry.type = types[i];
        bytes = assemble(&entry);
        ck_assert_int_eq(decode(&bytes), SHED_ENTRY_OK);
        for (size_t j = 0; j < sizeof(others) / sizeof(*others); j++)
            ck_assert_int_eq(
                shed_entry_decode(others[j], bytes.at, bytes.size, &out),
                SHED_ENTRY_CORRUPT);
    }
}

static const struct {
    size_t at;
    char value;
    size_t more; /* bytes behind it */
    enum shed_entry_state expected;
} changes[] = {
    {5, 'V', 0, SHED_ENTRY_OK},
    {5, 'V', 1, SHED_ENTRY_CORRUPT},
    {8, 'x', 0, SHED_ENTRY_CORRUPT},
    {68, 'x', 0, SHED_ENTRY_CORRUPT},
    {5, 'X', 0, SHED_ENTRY_FOREIGN},
    {4, 1, 0, SHED_ENTRY_FOREIGN}, /* the previous format */
};

TEST(unknown_formats_and_types_are_foreign_and_other_changes_corrupt)
{
    struct shed_entry row = make_row("a row");

    for (size_t i = 0; i < COUNT_OF(changes); i++) {
        struct bytes bytes = assemble(&row);
        bytes.at[changes[i].at] = (unsigned char)changes[i].value;
        bytes.size += changes[i].more;
        ck_assert_msg(decode(&bytes) == changes[i].expected, "%zu", i);
    }
}

TEST(every_shorter_piece_is_refused)
{
    struct shed_entry row = make_row("a row");
    struct bytes bytes = assemble(&row);

    while (bytes.size-- > 0) {
        enum shed_entry_state state = decode(&bytes);

        ck_assert_int_eq(state, bytes.size < SHED_ENTRY_HEADER_BYTES
                                    ? SHED_ENTRY_FOREIGN
                                    : SHED_ENTRY_CORRUPT);
    }
}

/* Two stores of the same row must be distinguishable. */
TEST(a_header_alone_tells_all_but_the_payload)
{
    struct shed_entry row = make_row("a row"), out;
    struct bytes bytes = assemble(&row);

    bytes.at[SHED_ENTRY_HEADER_BYTES] ^= 1; /* which is not checked */
    ck_assert_int_eq(shed_entry_decode_header(bytes.at, bytes.size, &out),
                     SHED_ENTRY_OK);
    ck_assert_int_eq(out.type, SHED_ENTRY_VALUE);
    ck_assert_uint_eq(out.written_ms, row.written_ms);
    ck_assert_uint_eq(out.payload_size, 5);
    ck_assert_ptr_null(out.payload);
    ck_assert_mem_eq(shed_entry_version(bytes.at), nonce, sizeof(nonce));
    ck_assert_int_eq(shed_entry_decode_header(bytes.at, bytes.size + 1, &out),
                     SHED_ENTRY_CORRUPT);
}

TEST(a_lease_names_its_holder_and_has_nothing_behind_its_header)
{
    const struct shed_bytes of = {"k", 1};
    const unsigned char flight[4] = {0, 0, 0, 77};
    unsigned char lease[SHED_ENTRY_HEADER_BYTES + 1] = {0};
    struct shed_entry_holder holder;
    struct shed_entry out;

    shed_entry_encode_lease(nonce, "0123456789abcdef", flight, 4711, 1000, 30,
                            lease);
    ck_assert_int_eq(
        shed_entry_decode(of, lease, SHED_ENTRY_HEADER_BYTES, &out),
        SHED_ENTRY_OK);
    ck_assert_int_eq(out.type, SHED_ENTRY_LEASE);
    ck_assert_uint_eq(out.written_ms, 1000);
    ck_assert_uint_eq(out.until_ms, 1030);
    ck_assert_mem_eq(shed_entry_version(lease), nonce, sizeof(nonce));
    shed_entry_holder(lease, &holder);
    ck_assert_mem_eq(holder.process, "0123456789abcdef",
                     sizeof(holder.process));
    ck_assert_uint_eq(holder.flight, 77);
    ck_assert_uint_eq(holder.epoch, 4711);
    ck_assert_int_eq(shed_entry_decode(of, lease, sizeof(lease), &out),
                     SHED_ENTRY_FOREIGN);
}

TEST(the_format_of_another_version_is_told)
{
    ck_assert_int_eq(shed_entry_format("\xf5shd\x02", 5), 2);
    ck_assert_int_eq(shed_entry_format("\xf5shd\x63", 5), 99);
    ck_assert_int_eq(shed_entry_format("\xf5shd", 4), -1);
    ck_assert_int_eq(shed_entry_format("a text", 6), -1);
}

TEST(another_nonce_makes_another_checksum)
{
    static const unsigned char other[SHED_ENTRY_VERSION_BYTES] = "other";
    struct shed_entry row = make_row("a row");
    struct shed_entry_parts first, second;

    shed_entry_encode(key, &row, nonce, &first);
    shed_entry_encode(key, &row, other, &second);
    ck_assert_int_ne(memcmp(first.head + 32, second.head + 32, 8), 0);
}

TEST(the_row_version_is_told_only_if_there_is_one)
{
    struct shed_entry row = make_row("a row");
    struct bytes bytes = assemble(&row);
    struct shed_row_version version = shed_entry_row_version(bytes.at);

    ck_assert(version.is_known);
    ck_assert_uint_eq(version.number, UINT64_MAX - 1);
    row.flags = 0;
    bytes = assemble(&row);
    ck_assert(!shed_entry_row_version(bytes.at).is_known);
}

TEST(a_row_is_older_only_by_a_version_of_both)
{
    const struct shed_row_version none = {.number = 5}, five = {5, true},
                                  six = {6, true};

    ck_assert(shed_row_version_is_lower(five, six));
    ck_assert(!shed_row_version_is_lower(six, six));
    ck_assert(!shed_row_version_is_lower(six, five));
    ck_assert(!shed_row_version_is_lower(none, six));
    ck_assert(!shed_row_version_is_lower(
        five, (struct shed_row_version){.number = 6}));
}

int main(void)
{
    return run_tests("entry");
}
