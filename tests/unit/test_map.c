/* map: each node is found by its key, whatever else is in its chain. */
#include "base/map.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "support/testing.h"

enum { NODES = 1000, CHAINS = 64 };

static struct shed_map map;
static struct shed_map_node *chains[CHAINS];
static struct shed_map_node node[NODES];
static char names[NODES][24];

/* count nodes, with keys of their own, in this many chains. */
static void fill(size_t count, size_t in_chains)
{
    shed_map_init(&map, chains, in_chains);
    for (size_t i = 0; i < count; i++) {
        snprintf(names[i], sizeof(names[i]), "k%zu", i);
        node[i].key = shed_map_key(shed_str(names[i]));
        shed_map_insert(&map, &node[i]);
    }
}

static struct shed_map_node *find(const char *key)
{
    return shed_map_find(&map, shed_map_key(shed_str(key)));
}

TEST(a_key_is_found_and_no_other)
{
    fill(NODES - 1, CHAINS);
    for (size_t i = 0; i < NODES - 1; i++)
        ck_assert_ptr_eq(find(names[i]), &node[i]);
    ck_assert_ptr_null(find("k999"));
    ck_assert_ptr_null(find("k"));
    ck_assert_ptr_null(find(""));
}

TEST(a_key_of_no_bytes_is_a_key)
{
    fill(2, 1);
    node[2].key = shed_map_key(shed_bytes(NULL, 0));
    shed_map_insert(&map, &node[2]);
    ck_assert_ptr_eq(find(""), &node[2]);
}

TEST(a_node_that_was_removed_is_not_found_and_its_neighbours_are)
{
    fill(3, 1);
    shed_map_remove(&map, &node[1]);
    ck_assert_ptr_null(find("k1"));
    ck_assert_ptr_eq(find("k0"), &node[0]);
    ck_assert_ptr_eq(find("k2"), &node[2]);
}

TEST(all_nodes_of_a_key_are_found)
{
    const struct shed_map_node *n;

    fill(3, 1);
    node[3].key = node[1].key;
    shed_map_insert(&map, &node[3]);
    n = find("k1");
    ck_assert_ptr_eq(n, &node[3]);
    n = shed_map_find_next(n);
    ck_assert_ptr_eq(n, &node[1]);
    ck_assert_ptr_null(shed_map_find_next(n));
}

TEST(keys_of_one_hash_are_told_apart)
{
    fill(2, CHAINS);
    shed_map_init(&map, chains, CHAINS);
    node[0].key.hash = node[1].key.hash = 7;
    shed_map_insert(&map, &node[0]);
    shed_map_insert(&map, &node[1]);
    ck_assert_ptr_eq(shed_map_find(&map, node[0].key), &node[0]);
    ck_assert_ptr_eq(shed_map_find(&map, node[1].key), &node[1]);
    ck_assert_ptr_null(shed_map_find_next(&node[1]));
}

TEST(next_visits_each_node_once)
{
    bool seen[NODES] = {false};
    size_t count = 0;

    fill(NODES, CHAINS);
    for (struct shed_map_node *n = NULL; (n = shed_map_next(&map, n)) != NULL;
         count++) {
        ck_assert(!seen[n - node]);
        seen[n - node] = true;
    }
    ck_assert_uint_eq(count, NODES);
}

TEST(an_empty_map_has_no_next)
{
    fill(1, CHAINS);
    shed_map_remove(&map, &node[0]);
    ck_assert_ptr_null(shed_map_next(&map, NULL));
}

int main(void)
{
    return run_tests("map");
}
