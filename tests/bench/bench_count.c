/*
 * What bench_instructions counts: hits of one hot row by one thread, all of
 * them inside get_all. near: in the near cache; blocking: each asks Redis.
 *
 * usage: bench_count SOCKET near|blocking GETS
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <snowshed/snowshed.h>

#include "bench.h"
#include "support/bare.h"

#define KEY "hot"

__attribute__((noinline)) static void get_all(struct shed_cache *cache,
                                              size_t gets)
{
    for (size_t i = 0; i < gets; i++) {
        struct shed_value *value;
        struct shed_error err;
        if (shed_get(cache, shed_str(KEY), NULL, &value, &err) != SHED_OK)
            bench_die(err.reason);
        shed_value_unref(value);
    }
}

int main(int argc, char **argv)
{
    bool is_near = argc > 2 && strcmp(argv[2], "near") == 0;
    size_t gets = bench_number(argc, argv, 3, 1000, 100000000);
    struct shed_cache_options options = bare_cache();
    struct shed_value *value;
    struct shed_cache *cache;

    if (argc != 4 || (!is_near && strcmp(argv[2], "blocking") != 0))
        bench_die("usage: bench_count SOCKET near|blocking GETS");
    if (is_near) {
        options.near_bytes = 16 << 20;
        options.near_ms = 3600000;
    }
    cache = bench_open(bench_uri(argv[1]), BARE_CLIENT, BARE_SOURCE, &options,
                       NULL, NULL);
    bench_put(cache, KEY);
    do
        if (shed_get(cache, shed_str(KEY), NULL, &value, NULL) == SHED_OK)
            shed_value_unref(value);
    while (is_near && bench_near_hits(cache) == 0);
    get_all(cache, gets);
    shed_cache_close(cache);
    return EXIT_SUCCESS;
}
