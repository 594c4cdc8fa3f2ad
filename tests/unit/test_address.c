/* URIs of Redis: their meaning, and that no secret gets into a text; what a
 * lookup leads to; whom of many sentinels is believed. */
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

#include "wire/address.h"
#include "wire/sentinel.h"
#include "support/testing.h"

static struct shed_address *parse(const char *uri)
{
    struct shed_address *address = NULL;
    struct shed_error err = {SHED_OK, ""};

    ck_assert_msg(shed_address_create(uri, &address, &err) == SHED_OK, "%s: %s",
                  uri, err.reason);
    return address;
}

#define L "127.0.0.1"

/* The meaning of each URI. Names are not resolved here, so the test does not
 * wait for a name server. */
static const struct {
    const char *uri, *user, *password, *host, *port, *db, *path;
} meanings[] = {
    {"redis://" L, NULL, NULL, L, "6379", "", NULL},
    {"redis://" L "/", NULL, NULL, L, "6379", "", NULL},
    {"redis://" L "/0", NULL, NULL, L, "6379", "", NULL},
    {"redis://" L ":7000/3", NULL, NULL, L, "7000", "3", NULL},
    {"redis://" L ":65535/1000000", NULL, NULL, L, "65535", "1000000", NULL},
    {"redis://127%2e0.0.1", NULL, NULL, L, "6379", "", NULL},
    {"redis://[::1]", NULL, NULL, "::1", "6379", "", NULL},
    {"redis://[::1]:1/2", NULL, NULL, "::1", "1", "2", NULL},
    {"redis://:p@[%3A:1]", NULL, "p", "::1", "6379", "", NULL},
    {"redis://u:p@" L, "u", "p", L, "6379", "", NULL},
    {"redis://:p@" L, NULL, "p", L, "6379", "", NULL},
    {"redis://:@" L, NULL, "", L, "6379", "", NULL},
    {"redis://u:@" L, "u", "", L, "6379", "", NULL},
    {"redis://shop:p%40ss%3A@" L, "shop", "p@ss:", L, "6379", "", NULL},
    {"redis://%75:%2F%3f%25@" L, "u", "/?%", L, "6379", "", NULL},
    /* delimiters that should have been encoded */
    {"redis://u:p:q@" L, "u", "p:q", L, "6379", "", NULL},
    {"redis://u:p@q@" L, "u", "p@q", L, "6379", "", NULL},
    {"redis://u:p/q@" L "/1", "u", "p/q", L, "6379", "1", NULL},
    {"redis://u:p?q@" L, "u", "p?q", L, "6379", "", NULL},
    {"redis://u:p/1@q/2@" L, "u", "p/1@q/2", L, "6379", "", NULL},
    {"redis://u:p[q@" L, "u", "p[q", L, "6379", "", NULL},
    {"unix:/run/r.sock", NULL, NULL, NULL, NULL, "", "/run/r.sock"},
    {"unix:///run/r.sock", NULL, NULL, NULL, NULL, "", "/run/r.sock"},
    {"unix:////run/r.sock", NULL, NULL, NULL, NULL, "", "//run/r.sock"},
    {"unix:/run/r.sock?db=2", NULL, NULL, NULL, NULL, "2", "/run/r.sock"},
    {"unix:///run/r.sock?db=2", NULL, NULL, NULL, NULL, "2", "/run/r.sock"},
    {"unix:/a@b:c[d]&e=f", NULL, NULL, NULL, NULL, "", "/a@b:c[d]&e=f"},
    {"unix:/a%3Fb%20c%40?db=0", NULL, NULL, NULL, NULL, "", "/a?b c@"},
    {"unix:u:p@/r.sock", "u", "p", NULL, NULL, "", "/r.sock"},
    {"unix://:p@/r.sock?db=9", NULL, "p", NULL, NULL, "9", "/r.sock"},
    {"unix://u:p?q@r@/a@b", "u", "p?q@r", NULL, NULL, "", "/a@b"},
    {"unix:u:%2f@/r", "u", "/", NULL, NULL, "", "/r"},
};

#define ck_same(a, b)                                                          \
    ck_assert_msg(((a) == NULL) == ((b) == NULL) &&                            \
                      ((a) == NULL || strcmp(a, b) == 0),                      \
                  "%s: %s is not %s", meanings[_i].uri,                        \
                  (a) != NULL ? (a) : "-", (b) != NULL ? (b) : "-")

TEST_EACH(uris_are_taken_apart, 0, COUNT_OF(meanings))
{
    struct shed_address *a = parse(meanings[_i].uri);
    struct sockaddr_un *un = (struct sockaddr_un *)(void *)&a->name;
    const char *path = a->name.ss_family == AF_UNIX ? un->sun_path : NULL;

    ck_same(a->user, meanings[_i].user);
    ck_same(a->password, meanings[_i].password);
    ck_same(a->host, meanings[_i].host);
    ck_same(a->port, meanings[_i].port);
    ck_assert_str_eq(a->db, meanings[_i].db);
    ck_same(path, meanings[_i].path);
    shed_address_unref(a);
}

TEST(the_scheme_says_whether_it_is_tls)
{
    static const struct {
        const char *uri;
        bool is_tls;
    } schemes[] = {
        {"redis://:p@" L ":7/3", false},  {"valkey://:p@" L ":7/3", false},
        {"rediss://:p@" L ":7/3", true},  {"valkeys://:p@" L ":7/3", true},
        {"unix:/rediss://r.sock", false}, {"redis://:s%3A//@" L, false},
    };

    for (size_t i = 0; i < sizeof(schemes) / sizeof(*schemes); i++) {
        struct shed_address *a = parse(schemes[i].uri);
        ck_assert_msg(a->is_tls == schemes[i].is_tls, "%s", schemes[i].uri);
        ck_assert_ptr_null(a->tls);
        shed_address_unref(a);
    }
}

static const struct {
    const char *uri, *ca, *cert, *key, *says; /* says: NULL: nothing */
} uses[] = {
    {"redis://" L, NULL, NULL, NULL, NULL},
    {"rediss://" L, NULL, NULL, NULL, NULL},
    {"redis://" L, "ca.pem", NULL, NULL, "are for rediss://"},
    {"unix:/r.sock", NULL, "c.pem", "c.key", "are for rediss://"},
    {"rediss://" L, NULL, "c.pem", NULL, "set both or neither"},
    {"rediss://" L, NULL, NULL, "c.key", "set both or neither"},
    {"rediss://" L, "/none/ca.pem", NULL, NULL, "/none/ca.pem"},
};

/* A password is not sent in plain text because of a wrong scheme. */
TEST_EACH(options_of_tls_are_for_its_schemes, 0, COUNT_OF(uses))
{
    struct shed_client_options options = SHED_CLIENT_OPTIONS_INIT;
    struct shed_address *a = parse(uses[_i].uri);
    struct shed_error err = {SHED_OK, ""};

    options.tls_ca = uses[_i].ca;
    options.tls_cert = uses[_i].cert;
    options.tls_key = uses[_i].key;
    ck_assert_int_eq(shed_address_use_tls(a, &options, &err),
                     uses[_i].says == NULL ? SHED_OK : SHED_EINVAL);
    if (uses[_i].says != NULL)
        ck_assert_msg(strstr(err.reason, uses[_i].says) != NULL, "%s",
                      err.reason);
    ck_assert((a->tls != NULL) == (a->is_tls && uses[_i].says == NULL));
    shed_address_unref(a);
}

TEST(the_text_is_host_and_port_or_the_path)
{
    struct shed_address *tcp = parse("redis://u:p@127.0.0.1:7000/3");
    struct shed_address *path = parse("unix://u:p@/run/r.sock?db=3");

    ck_assert_str_eq(tcp->text, "127.0.0.1:7000");
    ck_assert_str_eq(path->text, "/run/r.sock");
    shed_address_unref(tcp);
    shed_address_unref(path);
}

TEST(sentinels_are_told_from_the_name_of_the_primary)
{
    struct shed_address *a =
        parse("redis+sentinel://user:secret@a,b:1,[::1]:2/main?db=3&"
              "sentinel_user=s&sentinel_password=secret%26@co");

    ck_assert_str_eq(a->text, "main");
    ck_assert_str_eq(a->user, "user");
    ck_assert_str_eq(a->password, "secret");
    ck_assert_str_eq(a->db, "3");
    ck_assert_uint_eq(a->count, 3);
    ck_assert_str_eq(a->sentinels[0].host, "a");
    ck_assert_str_eq(a->sentinels[1].port, "1");
    ck_assert_str_eq(a->sentinel_user, "s");
    ck_assert_str_eq(a->sentinel_password, "secret&@co");
    ck_assert(!shed_address_is_known(a));
    shed_address_unref(a);
}

static const struct {
    const char *uri, *says;
} mistakes[] = {
    {"http://h", "it must begin with redis://, rediss://, unix:, "
                 "redis+sentinel:// or redis+cluster://"},
    {"", "it must begin with redis://, rediss://, unix:, redis+sentinel:// or "
         "redis+cluster://"},
    {"redis://", "host is missing"},
    {"redis://h,i", "it has 2 hosts, at most 1"},
    {"redis://h:x", "port must be a number"},
    {"redis://h:70000", "port must be a number"},
    {"redis://h:0", "port must be a number from 1"},
    {"rediss://", "host is missing"},
    {"valkeys://h?a", "write the database as /n"},
    {"redis://h:", "port must be a number"},
    {"redis://h:+1", "port must be a number"},
    {"redis://h:99999999999999999999", "port must be a number"},
    {"redis://h/x", "database must be a number"},
    {"redis://h/-1", "database must be a number"},
    {"redis://h/1000001", "database must be a number"},
    {"redis://h/1/2", "database"},
    {"redis://@h", "a user needs a password"},
    {"redis:///1", "host is missing"},
    {"redis://[]", "host is missing"},
    {"redis://u:p@", "host is missing"},
    {"redis://u@h", "a user needs a password"},
    {"redis://[::1", "'[' without ']'"},
    {"redis://[::1]6379", "may follow ']'"},
    {"redis://h?db=1", "no '?'"},
    {"redis://%zz", "host has a bad % escape"},
    {"redis://h%2", "host has a bad % escape"},
    {"redis://h%00", "host has a bad % escape"},
    {"redis://%:p@h", "user has a bad % escape"},
    {"redis://u:%0@h", "password has a bad % escape"},
    {"unix:/r%", "path has a bad % escape"},
    {"unix:run/r.sock", "absolute path"},
    {"unix:", "absolute path"},
    {"unix:u:p@", "absolute path"},
    {"unix:/r.sock?x=1", "only ?db=n"},
    {"unix:/r.sock?", "only ?db=n"},
    {"unix:/r.sock?db=", "database must be a number"},
    {"unix:/r.sock?db=1x", "database must be a number"},
    {"redis+sentinel://a,b", "the name of the primary is missing"},
    {"redis+sentinel://a,,b/main", "a host is missing"},
    {"redis+sentinel://a,/main", "a host is missing"},
    {"redis+sentinel:///main", "a host is missing"},
    {"redis+sentinel://a:x/main", "the port must be a number"},
    {"redis+sentinel://a/main?sentinel_user=s",
     "sentinel_user needs a sentinel_password"},
    {"redis+sentinel://a/main?db=3&db=3", "only db=n, sentinel_user"},
    {"redis+sentinel://a/main?cret=1", "only db=n, sentinel_user"},
    {"redis+sentinel://a/main?db=cret", "database must be a number"},
    {"redis+sentinel://a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p/main",
     "it has 16 sentinels, at most 15"},
};

TEST_EACH(each_mistake_has_an_error_of_its_own, 0, COUNT_OF(mistakes))
{
    struct shed_address *address = NULL;
    struct shed_error err = {SHED_OK, ""};

    ck_assert_int_eq(shed_address_create(mistakes[_i].uri, &address, &err),
                     SHED_EINVAL);
    ck_assert_msg(strstr(err.reason, mistakes[_i].says) != NULL &&
                      strstr(err.reason, "cret") == NULL,
                  "%s: %s", mistakes[_i].uri, err.reason);
    ck_assert_ptr_null(address);
}

/* Even if it was not encoded and a part of it looks like a host. */
TEST(no_secret_gets_into_a_text)
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
        shed_address_unref(address);
    }
}

static const struct sockaddr_in first = {.sin_family = AF_INET, .sin_port = 1};
static const struct sockaddr_in second = {.sin_family = AF_INET, .sin_port = 2};

static struct addrinfo found(const struct sockaddr_in *at)
{
    return (struct addrinfo){.ai_addr = (struct sockaddr *)(uintptr_t)at,
                             .ai_addrlen = sizeof(*at)};
}

static void set_found(struct shed_address *a, unsigned term,
                      const struct sockaddr_in *at)
{
    const struct addrinfo one = found(at);

    shed_address_set(a, term, &one, NULL);
}

static struct shed_address *create(void)
{
    struct shed_address *a = NULL;

    ck_assert_int_eq(shed_address_create("redis://127.0.0.1:1", &a, NULL),
                     SHED_OK);
    return a;
}

TEST(a_name_that_still_leads_there_too_is_not_elsewhere)
{
    struct addrinfo one = found(&second), other = found(&first);
    struct shed_address *a = create();

    set_found(a, 0, &first);
    ck_assert(shed_address_is_elsewhere(a, 0, &one));
    one.ai_next = &other;
    ck_assert(!shed_address_is_elsewhere(a, 0, &one));
    shed_address_unref(a);
}

/* Nothing is connected yet in that term. */
TEST(the_first_lookup_after_a_server_was_left_is_not_elsewhere)
{
    struct addrinfo there = found(&second), back = found(&first);
    struct shed_address *a = create();

    set_found(a, 0, &first);
    ck_assert(!shed_address_is_elsewhere(a, 1, &there));
    set_found(a, 1, &second);
    ck_assert(shed_address_is_elsewhere(a, 1, &back));
    shed_address_unref(a);
}

static void expect_port(struct shed_address *a, const struct sockaddr_in *at)
{
    char host[SHED_HOST_BYTES];
    struct sockaddr_storage name;
    socklen_t size;

    ck_assert_int_eq(shed_address_get(a, &name, &size, host, NULL), SHED_OK);
    ck_assert_uint_eq(size, sizeof(*at));
    ck_assert_mem_eq(&name, at, sizeof(*at));
}

/* Such as ::1 and 127.0.0.1, where a server listens at one of them. */
TEST(a_name_with_two_addresses_is_tried_at_both)
{
    struct addrinfo list = found(&first), other = found(&second);
    struct shed_address *a = create();

    list.ai_next = &other;
    shed_address_set(a, 1, &list, NULL);
    expect_port(a, &first);
    shed_address_refuse(a);
    ck_assert(shed_address_is_refused(a));
    shed_address_set(a, 1, &list, NULL);
    ck_assert(!shed_address_is_refused(a));
    expect_port(a, &second);
    shed_address_set(a, 1, &list, NULL); /* of another connection */
    expect_port(a, &second);
    shed_address_refuse(a);
    shed_address_set(a, 1, &list, NULL);
    expect_port(a, &first);
    shed_address_unref(a);
}

/* The lookup of the present term has not ended. Terms wrap around. */
TEST_EACH(of_two_lookups_that_end_late_the_newer_one_counts, 0, 2)
{
    unsigned term = _i == 0 ? 2 : 0;
    struct addrinfo there = found(&second);
    struct shed_address *a = create();

    a->looked_up_term = term - 1;
    set_found(a, term, &second);
    set_found(a, term - 1, &first);
    expect_port(a, &second);
    ck_assert(!shed_address_is_elsewhere(a, term, &there));
    shed_address_set(a, term - 1, NULL, "not found");
    ck_assert_uint_eq(a->looked_up_term, term); /* nobody waits for another */
    set_found(a, term + 1, &first);
    expect_port(a, &first);
    shed_address_unref(a);
}

/* -------------------------------------------------------------- sentinels */

/* Each letter is a server that a sentinel names; '-': no answer. */
static const struct {
    const char *answers;
    char agreed; /* 0: none */
} votes[] = {
    {"a", 'a'},   {"-", 0},       {"aa", 'a'},    {"ab", 0},   {"a-", 0},
    {"aab", 'a'}, {"baa", 'a'},   {"aba", 'a'},   {"abc", 0},  {"a--", 0},
    {"aa-", 'a'}, {"-aa", 'a'},   {"---", 0},     {"aabb", 0}, {"abbbc", 'b'},
    {"ab--b", 0}, {"aaa--", 'a'}, {"aabbb", 'b'},
};

TEST_EACH(more_than_half_of_all_must_agree, 0, COUNT_OF(votes))
{
    struct shed_place answers[SHED_SENTINELS_MAX] = {{{0}, {0}}};
    size_t count = strlen(votes[_i].answers);
    const struct shed_place *found;

    for (size_t i = 0; i < count; i++)
        if (votes[_i].answers[i] != '-') {
            snprintf(answers[i].host, sizeof(answers[i].host), "10.0.0.1");
            snprintf(answers[i].port, sizeof(answers[i].port), "%d",
                     votes[_i].answers[i]);
        }
    found = shed_sentinels_agree(answers, count);
    ck_assert_int_eq(found != NULL ? atoi(found->port) : 0, votes[_i].agreed);
}

/* A port alone does not make two servers one. */
TEST(host_and_port_count)
{
    struct shed_place answers[2] = {{"10.0.0.1", "6379"}, {"10.0.0.2", "6379"}};

    ck_assert_ptr_null(shed_sentinels_agree(answers, 2));
}

int main(void)
{
    return run_tests("address");
}
