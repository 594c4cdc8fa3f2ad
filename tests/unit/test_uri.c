/* URIs in general (for Redis see test_address, for MySQL test_mysql_query):
 * parts and their lengths, reasons, and that the copy is wiped. */
#include <string.h>

#include "base/uri.h"
#include "support/testing.h"

static const struct shed_uri_form host_form = {
    .name = "Test URI",
    .user_stops = "?",
    .has_host = true,
    .path = "shelf",
    .parameters = {"color"},
    .parameter_rule = "only ?color=name may follow"};

static const struct shed_uri_form path_form = {
    .name = "Test URI",
    .user_stops = "/",
    .path = "path",
    .parameter_rule = "nothing may follow the path"};

/* ------------------------------------------------------------------- wiping */

WRAPPED(explicit_bzero);

static const void *wiped;
static size_t wiped_size;

void __wrap_explicit_bzero(void *bytes, size_t size)
{
    wiped = bytes;
    wiped_size = size;
    __real_explicit_bzero(bytes, size);
}

TEST(fini_wipes_the_copy)
{
    struct shed_uri uri;
    const char *buffer;

    ck_assert_int_eq(shed_uri_parse(&host_form, "u:p@h/s", &uri, NULL),
                     SHED_OK);
    buffer = uri.buffer;
    shed_uri_fini(&uri);
    ck_assert_ptr_eq(wiped, buffer);
    ck_assert_uint_eq(wiped_size, sizeof("u:p@h/s"));
    ck_assert_ptr_null(uri.buffer);
    ck_assert_ptr_null(uri.password.text);
    wiped = NULL;
    shed_uri_fini(&uri);
    ck_assert_ptr_null(wiped);
}

TEST(a_copy_with_a_mistake_in_it_is_wiped)
{
    struct shed_uri uri;

    ck_assert_int_eq(shed_uri_parse(&host_form, "u:p%@h:0", &uri, NULL),
                     SHED_EINVAL);
    ck_assert_ptr_nonnull(wiped);
    ck_assert_uint_eq(wiped_size, sizeof("u:p%@h:0"));
    ck_assert_ptr_null(uri.buffer);
}

/* -------------------------------------------------------------------- parts */

static const struct {
    const char *text, *user, *password, *host, *path, *parameter;
    unsigned port;
} parts[] = {
    {"test://", NULL, NULL, "", NULL, NULL, 0},
    {"test://h", NULL, NULL, "h", NULL, NULL, 0},
    {"test://h/", NULL, NULL, "h", "", NULL, 0},
    {"test://@/?color=", "", NULL, "", "", "", 0},
    {"test://:@h", "", "", "h", NULL, NULL, 0},
    {"test://u:p:q@h:80/s?color=a/b?c=d", "u", "p:q", "h", "s", "a/b?c=d", 80},
    {"test://u:p@q/r@h/s", "u", "p@q/r", "h", "s", NULL, 0},
    {"test://h?color=a@b", NULL, NULL, "h", NULL, "a@b", 0},
    {"test://%25:%26@%2fh/%3f?color=%3d%41", "%", "&", "/h", "?", "=A", 0},
    {"test://[::1]:080/s", NULL, NULL, "::1", "s", NULL, 80},
    {"test://[a%5db]", NULL, NULL, "a]b", NULL, NULL, 0},
    {"file:/a/b", NULL, NULL, NULL, "/a/b", NULL, 0},
    {"file:u:p?@/a@b:%31", "u", "p?", NULL, "/a@b:1", NULL, 0},
    {"file:", NULL, NULL, NULL, "", NULL, 0},
};

/* With the first host, if there is one. */
static enum shed_code parse(const char *text, struct shed_uri *uri,
                            struct shed_uri_part *host, unsigned *port,
                            struct shed_error *err)
{
    bool has_host = shed_uri_has_scheme(text, "test://");
    enum shed_code code =
        shed_uri_parse(has_host ? &host_form : &path_form,
                       text + strlen(has_host ? "test://" : "file:"), uri, err);
    char *hosts = uri->hosts.text;

    *host = uri->hosts;
    *port = 0;
    if (code == SHED_OK && has_host && uri->hosts.size > 0)
        code = shed_uri_next_host(host_form.name, &hosts, host, port, err);
    return code;
}

static void assert_part(const char *text, struct shed_uri_part part,
                        const char *wanted)
{
    ck_assert_msg((part.text == NULL) == (wanted == NULL), "%s: %s", text,
                  wanted != NULL ? wanted : "-");
    if (wanted == NULL)
        return;
    ck_assert_str_eq(part.text, wanted);
    ck_assert_uint_eq(part.size, strlen(wanted));
}

TEST_EACH(parts_are_cut_and_then_decoded, 0, COUNT_OF(parts))
{
    const char *text = parts[_i].text;
    struct shed_error err = {0};
    struct shed_uri_part host;
    struct shed_uri uri;
    unsigned port;

    ck_assert_msg(parse(text, &uri, &host, &port, &err) == SHED_OK, "%s: %s",
                  text, err.reason);
    assert_part(text, uri.user, parts[_i].user);
    assert_part(text, uri.password, parts[_i].password);
    assert_part(text, host, parts[_i].host);
    assert_part(text, uri.path, parts[_i].path);
    assert_part(text, uri.parameters[0], parts[_i].parameter);
    ck_assert_uint_eq(port, parts[_i].port);
    shed_uri_fini(&uri);
}

/* Every "cret" is a piece of a password. */
static const struct {
    const char *text, *says;
} mistakes[] = {
    {"test://u:cret%@h", "password has a bad % escape"},
    {"test://u:cret%1@h", "password has a bad % escape"},
    {"test://u:cret%g1@h", "password has a bad % escape"},
    {"test://u:cret%00@h", "password has a bad % escape"},
    {"test://u%:cret@h", "user has a bad % escape"},
    {"test://u:cret@h%", "host has a bad % escape"},
    {"test://u:cret@h/%", "shelf has a bad % escape"},
    {"test://u:cret@h?color=%", "color has a bad % escape"},
    {"test://u:cret@h:", "port must be a number from 1 to 65535"},
    {"test://u:cret@h:0", "port must be a number from 1 to 65535"},
    {"test://u:cret@h:65536", "port must be a number from 1 to 65535"},
    {"test://u:cret@h:4294967297", "port must be a number from 1 to 65535"},
    {"test://u:cret@h:%31", "port must be a number from 1 to 65535"},
    {"test://u:cret@:80", "a host is missing"},
    {"test://u:cret@[]:80", "a host is missing"},
    {"test://u:cret@[h", "'[' without ']'"},
    {"test://u:cret@[h]80", "may follow ']'"},
    {"test://u:cret@h/s/t", "shelf has a '/'"},
    {"test://u:1?cret@h", "only ?color=name"},
    {"test://u:cret@h?", "only ?color=name"},
    {"test://u:cret@h?colour=red", "only ?color=name"},
    {"test://u:cret@h?color", "only ?color=name"},
    {"test://u:cret@h?color=red&a=b", "only ?color=name"},
    {"test://u:cret@h?color=red&color=cret", "only ?color=name"},
    {"test://u:cret@h?color=red&", "only ?color=name"},
    {"file:u:cret@/a?b", "nothing may follow"},
    {"file:u:cret@/%", "path has a bad % escape"},
};

TEST_EACH(mistakes_are_named_without_a_word_of_the_password, 0,
          COUNT_OF(mistakes))
{
    const char *text = mistakes[_i].text;
    struct shed_error err = {0};
    struct shed_uri_part host;
    struct shed_uri uri;
    unsigned port;

    ck_assert_int_eq(parse(text, &uri, &host, &port, &err), SHED_EINVAL);
    ck_assert_msg(strstr(err.reason, mistakes[_i].says) != NULL, "%s: %s", text,
                  err.reason);
    ck_assert_int_eq(strncmp(err.reason, "Test URI: ", 10), 0);
    ck_assert_ptr_null(strstr(err.reason, "cret"));
    shed_uri_fini(&uri);
}

/* ------------------------------------------------------------------ numbers */

static bool read_number(const char *text, size_t size, unsigned *out)
{
    char copy[32];

    memcpy(copy, text, strlen(text) + 1);
    return shed_uri_number((struct shed_uri_part){copy, size}, 2, 99999999,
                           out);
}

TEST(numbers_end_where_their_part_does)
{
    unsigned number = 0;

    ck_assert(read_number("123", 2, &number));
    ck_assert_uint_eq(number, 12);
    ck_assert(read_number("00000000000000000000099999999", 29, &number));
    ck_assert_uint_eq(number, 99999999);
    ck_assert(!read_number("123", 0, &number));
    ck_assert(!read_number("1", 1, &number));
    ck_assert(!read_number("100000000", 9, &number));
    ck_assert(!read_number("18446744073709551618", 20, &number));
    ck_assert(!read_number("+12", 3, &number));
    ck_assert(!read_number("12 ", 3, &number));
}

int main(void)
{
    return run_tests("uri");
}
