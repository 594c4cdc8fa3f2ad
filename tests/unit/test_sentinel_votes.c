/* What sentinels say is believed if more than half of all say it. */
#include "wire/sentinel.h"

#include <stdio.h>
#include <string.h>

#include "wire/address.h"
#include "support/testing.h"

/* Each letter is a server that a sentinel names; '-': no answer. */
static const struct {
    const char *answers;
    char agreed; /* 0: none */
} rows[] = {
    {"a", 'a'},   {"-", 0},       {"aa", 'a'},    {"ab", 0},   {"a-", 0},
    {"aab", 'a'}, {"baa", 'a'},   {"aba", 'a'},   {"abc", 0},  {"a--", 0},
    {"aa-", 'a'}, {"-aa", 'a'},   {"---", 0},     {"aabb", 0}, {"abbbc", 'b'},
    {"ab--b", 0}, {"aaa--", 'a'}, {"aabbb", 'b'},
};

TEST_EACH(more_than_half_of_all_must_agree, 0, COUNT_OF(rows))
{
    struct shed_sentinel_answer answers[SHED_SENTINELS_MAX] = {{{0}, {0}}};
    size_t count = strlen(rows[_i].answers);
    const struct shed_sentinel_answer *found;

    for (size_t i = 0; i < count; i++)
        if (rows[_i].answers[i] != '-') {
            snprintf(answers[i].host, sizeof(answers[i].host), "10.0.0.1");
            snprintf(answers[i].port, sizeof(answers[i].port), "%d",
                     rows[_i].answers[i]);
        }
    found = shed_sentinels_agree(answers, count);
    ck_assert_int_eq(found != NULL ? atoi(found->port) : 0, rows[_i].agreed);
}

/* A port alone does not make two servers one. */
TEST(host_and_port_count)
{
    struct shed_sentinel_answer answers[2] = {{"10.0.0.1", "6379"},
                                              {"10.0.0.2", "6379"}};

    ck_assert_ptr_null(shed_sentinels_agree(answers, 2));
}

static const struct {
    const char *uri, *reason; /* NULL: it is good */
} uris[] = {
    {"redis+sentinel://a,b:1,[::1]:2/main", NULL},
    {"redis+sentinel://user:secret@a/main?db=3&sentinel_user=s&"
     "sentinel_password=secret%26@co",
     NULL},
    {"redis+sentinel://a,b", "the name of the primary is missing"},
    {"redis+sentinel://a,,b/main", "a host is missing"},
    {"redis+sentinel://a,/main", "a host is missing"},
    {"redis+sentinel:///main", "a host is missing"},
    {"redis+sentinel://a:x/main", "the port must be a number"},
    {"redis+sentinel://a/main?sentinel_user=s",
     "sentinel_user needs a sentinel_password"},
    {"redis+sentinel://a/main?db=3&db=3", "only db=n, sentinel_user"},
    {"redis+sentinel://a/main?secret=1", "only db=n, sentinel_user"},
    {"redis+sentinel://a/main?db=secret", "the database must be a number"},
    {"redis+sentinel://a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p/main",
     "it has 16 sentinels, at most 15"},
};

TEST_EACH(a_uri_is_checked_and_no_reason_shows_a_password, 0, COUNT_OF(uris))
{
    struct shed_error err = {SHED_OK, ""};
    struct shed_address *address = NULL;
    enum shed_code code = shed_address_create(uris[_i].uri, &address, &err);

    if (uris[_i].reason == NULL) {
        ck_assert_msg(code == SHED_OK, "%s", err.reason);
        ck_assert_str_eq(address->text, "main");
    } else {
        ck_assert_int_eq(code, SHED_EINVAL);
        ck_assert_msg(strstr(err.reason, uris[_i].reason) != NULL, "%s",
                      err.reason);
        ck_assert_ptr_null(strstr(err.reason, "secret"));
    }
    shed_address_unref(address);
}

TEST(the_parts_of_a_uri_are_decoded)
{
    struct shed_address *a = NULL;

    ck_assert_int_eq(shed_address_create(uris[1].uri, &a, NULL), SHED_OK);
    ck_assert_str_eq(a->user, "user");
    ck_assert_str_eq(a->password, "secret");
    ck_assert_str_eq(a->db, "3");
    ck_assert_uint_eq(a->count, 1);
    ck_assert_str_eq(a->sentinels[0].host, "a");
    ck_assert_str_eq(a->sentinel_user, "s");
    ck_assert_str_eq(a->sentinel_password, "secret&@co");
    ck_assert(!shed_address_is_known(a));
    shed_address_unref(a);
}

int main(void)
{
    return run_tests("sentinel votes");
}
