/* The names of a lock's keys: according to a cluster server all are in the slot
 * of the lock itself, and no two locks share a key. */
#include <stdio.h>
#include <string.h>

#include "lock/keys.h"
#include "support/lock_fixture.h"

static struct shed_lock_options exact(enum shed_lock_algorithm algorithm)
{
    struct shed_lock_options o = options_of(algorithm);

    o.exact_key = 1;
    return o;
}

static void check_slots(const char *name, size_t size)
{
    struct shed_lock_options o = exact(SHED_LOCK_LEASE);
    struct shed_lock_spec spec = {.options = &o};
    char *room = malloc(shed_lock_keys_bytes(size));
    long long slot = server_int(&server, "CLUSTER KEYSLOT %b", name, size);

    ck_assert_ptr_nonnull(room);
    ck_assert_ptr_eq(shed_lock_keys_name(&spec, true, name, size, room), room);
    ck_assert_mem_eq(spec.key[SHED_LOCK_KEY].data, name, size);
    ck_assert_uint_eq(spec.key[SHED_LOCK_KEY].size, size);
    for (int i = 0; i < SHED_LOCK_KEYS; i++)
        ck_assert_msg(server_int(&server, "CLUSTER KEYSLOT %b",
                                 spec.key[i].data, spec.key[i].size) == slot,
                      "%.*s of %.*s", (int)spec.key[i].size,
                      (const char *)spec.key[i].data, (int)size, name);
    free(room);
}

TEST(all_keys_of_a_lock_are_in_its_slot)
{
    static const char *const names[] = {"job",
                                        "app:lock:job",
                                        "{job}",
                                        "app:{job}:lock",
                                        "a{b}c{d}",
                                        "{",
                                        "}",
                                        "{}",
                                        "{}job",
                                        "a}b",
                                        "a{b",
                                        "a{b{c}d",
                                        "}{",
                                        "}a{b",
                                        "{}{job}",
                                        "a{}b}",
                                        "{{}",
                                        "lock:{job}",
                                        "lock:={job}job",
                                        " "};
    char longest[SHED_LOCK_NAME_MAX_BYTES];

    /* only a cluster server computes slots */
    server_stop(&server);
    server = (struct server){.options = {"--cluster-enabled", "yes"}};
    server_start(&server);
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        check_slots(names[i], strlen(names[i]));
    for (int byte = 0; byte < 256; byte++) {
        memset(longest, byte, sizeof(longest));
        check_slots(longest, 1);
        check_slots(longest, sizeof(longest));
    }
}

/* Two locks have no key in common. */
TEST(the_side_keys_of_a_lock_are_its_own)
{
    static const char *const names[] = {"a",    "{a}",    "={a}a", "a}",
                                        "{a}a", "a}{a}x", "{a}x}"};
    enum { NAMES = sizeof(names) / sizeof(*names), BYTES = 256 };
    struct shed_lock_options o[] = {options_of(SHED_LOCK_LEASE),
                                    exact(SHED_LOCK_LEASE)};
    struct shed_lock_spec spec[2 * NAMES];
    char room[2 * NAMES][BYTES];

    for (int i = 0; i < 2 * NAMES; i++) {
        const char *name = names[i / 2];
        spec[i] = (struct shed_lock_spec){.options = &o[i % 2]};
        ck_assert_uint_le(shed_lock_keys_bytes(strlen(name)), BYTES);
        (void)shed_lock_keys_name(&spec[i], true, name, strlen(name), room[i]);
        for (int j = 0; j < i; j++)
            for (int k = 0; k < SHED_LOCK_KEYS * SHED_LOCK_KEYS; k++) {
                int one = k / SHED_LOCK_KEYS, two = k % SHED_LOCK_KEYS;
                ck_assert(spec[i].key[one].size != spec[j].key[two].size ||
                          memcmp(spec[i].key[one].data, spec[j].key[two].data,
                                 spec[i].key[one].size) != 0);
            }
    }
}

static bool exists(const char *key)
{
    return server_int(&server, "EXISTS %s", key) == 1;
}

TEST(the_option_makes_the_name_the_key)
{
    struct shed_client *client = open_client(&server, SHED_WAIT_AUTO);
    struct shed_lock_options o = options_of(SHED_LOCK_LEASE);
    struct shed_lock *named = open_lock(client, &o), *bare;

    acquire(named, 0);
    ck_assert(exists("lock:{job}") && exists("lock:{job}:f") && !exists("job"));
    o.exact_key = 1;
    bare = open_lock(client, &o);
    acquire(bare, 0);
    ck_assert(exists("job") && exists("lock:={job}job:f"));
    server_check_ttls(&server);
    shed_lock_close(named);
    shed_lock_close(bare);
    ck_assert(!exists("lock:{job}") && !exists("job"));
    o.exact_key = 2;
    EXPECT_CODE(shed_lock_open(client, shed_str("a"), &o, &bare, NULL),
                SHED_EINVAL);
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), server_up, server_down);
    return run_tests("lock keys");
}
