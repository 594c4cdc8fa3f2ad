/* URIs of Redis: what they mean, and that no secret gets into a text. */
#include <string.h>
#include <sys/un.h>

#include "redis/address.h"
#include "support/testing.h"

static struct shed_address *parse(const char *uri)
{
    struct shed_address *address = NULL;
    struct shed_error err = {SHED_OK, ""};

    ck_assert_msg(shed_address_create(uri, &address, &err) == SHED_OK, "%s: %s",
                  uri, err.reason);
    return address;
}

START_TEST(host_port_and_database_are_found)
{
    struct shed_address *a = parse("redis://127.0.0.1:7000/3");

    ck_assert_str_eq(a->host, "127.0.0.1");
    ck_assert_str_eq(a->port, "7000");
    ck_assert_str_eq(a->db, "3");
    ck_assert_str_eq(a->text, "127.0.0.1:7000");
    ck_assert_ptr_null(a->password);
    shed_address_destroy(a);
}
END_TEST

START_TEST(the_port_has_a_default_and_ipv6_stands_in_brackets)
{
    struct shed_address *a = parse("redis://[::1]");

    ck_assert_str_eq(a->host, "::1");
    ck_assert_str_eq(a->port, "6379");
    ck_assert_str_eq(a->db, "");
    shed_address_destroy(a);
}
END_TEST

START_TEST(user_and_password_are_decoded)
{
    struct shed_address *a = parse("redis://shop:p%40ss%3A@127.0.0.1");

    ck_assert_str_eq(a->user, "shop");
    ck_assert_str_eq(a->password, "p@ss:");
    shed_address_destroy(a);
}
END_TEST

START_TEST(a_unix_path_is_taken_with_and_without_slashes)
{
    static const char *const uris[] = {"unix:/run/r.sock?db=2",
                                       "unix:///run/r.sock?db=2"};

    for (size_t i = 0; i < sizeof(uris) / sizeof(*uris); i++) {
        struct shed_address *a = parse(uris[i]);
        ck_assert_str_eq(a->text, "/run/r.sock");
        ck_assert_str_eq(a->db, "2");
        ck_assert_int_eq(a->name.ss_family, AF_UNIX);
        shed_address_destroy(a);
    }
}
END_TEST

START_TEST(each_mistake_has_an_error_of_its_own)
{
    static const struct {
        const char *uri, *says;
    } rows[] = {
        {"http://h", "must begin with"},
        {"redis://", "host is missing"},
        {"redis://h:x", "port must be a number"},
        {"redis://h:70000", "port must be a number"},
        {"redis://h:0", "port must be a number from 1"},
        {"rediss://h", "TLS"},
        {"redis://h/x", "database must be a number"},
        {"redis://u@h", "a user needs a password"},
        {"redis://[::1", "'[' without ']'"},
        {"redis://[::1]6379", "may follow ']'"},
        {"redis://h?db=1", "no '?'"},
        {"redis://%zz", "bad % escape"},
        {"unix:run/r.sock", "absolute path"},
        {"unix:/r.sock?x=1", "only ?db=n"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct shed_address *address = NULL;
        struct shed_error err = {SHED_OK, ""};
        ck_assert_int_eq(shed_address_create(rows[i].uri, &address, &err),
                         SHED_EINVAL);
        ck_assert_msg(strstr(err.reason, rows[i].says) != NULL, "%s: %s",
                      rows[i].uri, err.reason);
        ck_assert_ptr_null(address);
    }
}
END_TEST

/* Also where it was not encoded, and something of it could pass for a host. */
START_TEST(no_secret_gets_into_a_text)
{
    static const char *const uris[] = {
        "redis://user:se@cret@127.0.0.1",  "redis://user:se/cret@127.0.0.1",
        "redis://user:se?cret@127.0.0.1",  "redis://:secret@127.0.0.1:x",
        "unix://user:secret@run/r.sock",   "redis://:cret%zz@127.0.0.1",
        "redis://u:se@cret@no.such.host.", "redis://:cret@127.0.0.1/x",
    };

    for (size_t i = 0; i < sizeof(uris) / sizeof(*uris); i++) {
        struct shed_address *address = NULL;
        struct shed_error err = {SHED_OK, ""};
        if (shed_address_create(uris[i], &address, &err) == SHED_OK)
            ck_assert_ptr_null(strstr(address->text, "cret"));
        ck_assert_msg(strstr(err.reason, "cret") == NULL, "%s: %s", uris[i],
                      err.reason);
        shed_address_destroy(address);
    }
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("address");

    tcase_set_timeout(tc, TEST_TIMEOUT_S);
    tcase_add_test(tc, host_port_and_database_are_found);
    tcase_add_test(tc, the_port_has_a_default_and_ipv6_stands_in_brackets);
    tcase_add_test(tc, user_and_password_are_decoded);
    tcase_add_test(tc, a_unix_path_is_taken_with_and_without_slashes);
    tcase_add_test(tc, each_mistake_has_an_error_of_its_own);
    tcase_add_test(tc, no_secret_gets_into_a_text);
    return run_tests("address", tc);
}
