/* value: a payload that does not change, and is freed with its last
 * reference. */
#include "base/value.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "support/testing.h"

/* The linker replaces malloc by this. */
WRAPPED(malloc);

static bool is_memory_out;

void *__wrap_malloc(size_t size)
{
    return is_memory_out ? NULL : __real_malloc(size);
}

static atomic_uint frees;

static void count_free(void *owner)
{
    ck_assert_ptr_eq(owner, &frees);
    atomic_fetch_add(&frees, 1);
}

/* A value in memory of an owner's. */
static struct shed_value *owned(const char *bytes, size_t size)
{
    static struct shed_value_block block;

    return shed_value_init(&block, SHED_KIND_ROW, SHED_ORIGIN_REDIS, NULL,
                           bytes, size, &frees, count_free);
}

TEST(a_value_is_a_copy_of_its_data)
{
    char data[] = "row\0one";
    struct shed_value *value =
        shed_value_create(SHED_KIND_ROW, SHED_ORIGIN_LOAD, data, sizeof(data));

    ck_assert_ptr_nonnull(value);
    memset(data, 'x', sizeof(data));
    ck_assert_uint_eq(value->size, sizeof(data));
    ck_assert_mem_eq(value->data, "row\0one", sizeof(data));
    shed_value_unref(value);
}

TEST(a_value_tells_what_it_is_and_where_it_is_from)
{
    struct shed_value *value =
        shed_value_create(SHED_KIND_ABSENT, SHED_ORIGIN_UNPUBLISHED, NULL, 0);

    ck_assert_ptr_nonnull(value);
    ck_assert_int_eq(value->kind, SHED_KIND_ABSENT);
    ck_assert_int_eq(value->origin, SHED_ORIGIN_UNPUBLISHED);
    ck_assert_uint_eq(value->age_ms, 0);
    ck_assert_uint_eq(value->fresh_ms, 0);
    shed_value_unref(value);
}

TEST(an_empty_row_has_no_data)
{
    struct shed_value *made =
        shed_value_create(SHED_KIND_ROW, SHED_ORIGIN_LOAD, "", 0);
    struct shed_value *inside = owned("", 0);

    ck_assert_ptr_nonnull(made);
    ck_assert_int_eq(made->kind, SHED_KIND_ROW);
    ck_assert_ptr_null(made->data);
    ck_assert_ptr_null(inside->data);
    shed_value_unref(made);
    shed_value_unref(inside);
}

TEST(the_last_reference_frees_the_owner_of_the_bytes_once)
{
    struct shed_value *value = owned("bytes", 5);

    ck_assert_uint_eq(value->size, 5);
    ck_assert_mem_eq(value->data, "bytes", 5);
    ck_assert_ptr_eq(shed_value_ref(value), value);
    shed_value_unref(value);
    ck_assert_uint_eq(frees, 0);
    shed_value_unref(value);
    ck_assert_uint_eq(frees, 1);
    shed_value_unref(NULL);
}

TEST(no_memory_is_no_value)
{
    struct shed_value *value;

    is_memory_out = true;
    value = shed_value_create(SHED_KIND_ROW, SHED_ORIGIN_LOAD, "x", 1);
    is_memory_out = false; /* Check needs some. */
    ck_assert_ptr_null(value);
}

TEST(a_size_that_overflows_is_no_value)
{
    ck_assert_ptr_null(
        shed_value_create(SHED_KIND_ROW, SHED_ORIGIN_LOAD, "x", SIZE_MAX));
}

enum { THREADS = 4, ROUNDS = 20000 };

/* Holds a reference of its own, and drops it at the end. */
static void *borrow(void *user)
{
    struct shed_value *value = user;

    for (int i = 0; i < ROUNDS; i++) {
        (void)shed_value_ref(value);
        shed_value_unref(value);
    }
    shed_value_unref(value);
    return NULL;
}

TEST(threads_that_share_a_value_free_it_once)
{
    pthread_t threads[THREADS];
    struct shed_value *value = owned("bytes", 5);

    for (int i = 0; i < THREADS; i++)
        start_thread(&threads[i], borrow, shed_value_ref(value));
    shed_value_unref(value);
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    ck_assert_uint_eq(frees, 1);
}

int main(void)
{
    return run_tests("value");
}
