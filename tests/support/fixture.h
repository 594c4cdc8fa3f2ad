/* Shared by the tests of a whole cache: a server, a client, a cache, and a
 * table in memory as its source, whose loads can be held and counted. */
#ifndef FIXTURE_H
#define FIXTURE_H

#include <pthread.h>
#include <stdbool.h>

#include <snowshed/snowshed.h>
#include <snowshed/source.h>
#include <snowshed/stats.h>

#include "support/server.h"
#include "support/testing.h"

/* The table. A key that begins with "absent", "null", "empty", "fail" or "big"
 * has such a row; every other one has "KEY@VERSION". A load reads the version
 * when it begins, and answers when the table is not held. */
#define TABLE_PARKED_MAX 128

struct table {
    pthread_mutex_t mu;
    pthread_cond_t changed;
    /* under mu */
    unsigned version;
    bool is_held;
    bool is_async;     /* held loads have left their thread */
    bool is_failing;   /* every key fails */
    bool is_empty;     /* no key has a row */
    bool has_versions; /* rows have theirs, and one that Redis has in its
                          version is answered as unmodified */
    bool has_tags;     /* rows have two: "all", and their key's first letter */
    bool has_ttl;      /* the answers have a time to live of their own */
    uint64_t ttl_ms;
    struct parked {
        struct shed_load *load;
        unsigned version;
    } parked[TABLE_PARKED_MAX];
    size_t parked_count;
    unsigned loads, keys, running, most_running;
};

struct fixture {
    struct server server;
    struct table table;
    /* may be changed before fixture_open */
    struct shed_client_options client_options;
    struct shed_source_options source_options;
    struct shed_cache_options cache_options;
    const char *uri; /* NULL: that of the server */
    char tls_uri[SERVER_URI_BYTES], tls_ca[SERVER_PATH_BYTES];
    struct proxy *proxy; /* NULL: none */
    struct shed_client *client;
    struct shed_source *source;
    struct shed_cache *cache;
};

/* Longer than a successful call takes, or a server is silent, on a machine
 * where a process can stop for seconds. */
#define FIXTURE_TIMEOUT_MS 120000
#define FIXTURE_SILENCE_MS 60000

/* Set the defaults except for these times, and start a server; nothing is
 * open. */
void fixture_init(struct fixture *r);

/* The same with a server that also speaks TLS (server.h); the client uses that,
 * and believes ca.pem. */
void fixture_init_tls(struct fixture *r, const char *certificates);

/* Let clients take a server for silent after so many ms, scaled, and try again
 * soon; before fixture_open. */
void fixture_hurry(struct fixture *r, uint64_t silence_ms);

/* Start a proxy in front of the server and let clients connect to it; before
 * fixture_open. */
void fixture_add_proxy(struct fixture *r, struct proxy *proxy);

/* Open client, source and cache "t". */
void fixture_open(struct fixture *r);
void fixture_close(struct fixture *r);

/* Init and open; and end what there is of both. At the end every key of the
 * server, unless it was killed, must have a ttl. */
void fixture_up(struct fixture *r);
void fixture_down(struct fixture *r);

/* The fixture of a program's tests, and what brings it up and down. */
extern struct fixture fixture;
void fixture_set_up(void);
void fixture_tear_down(void);

/* As run_tests, with a fixture for each test, which may end it before. */
static inline int run_fixture_tests(const char *name)
{
    tcase_add_checked_fixture(test_case(), fixture_set_up, fixture_tear_down);
    return run_tests(name);
}

/* A client of its own with a cache on the same table. */
struct peer {
    struct shed_client *client;
    struct shed_cache *cache;
};
void peer_open(struct peer *p, struct fixture *r);
void peer_close(struct peer *p);

/* Hold and release loads, commit a new version of all rows, let every load fail
 * or not, count loads. */
void table_hold(struct table *t);
void table_release(struct table *t);
void table_update(struct table *t);
void table_set_version(struct table *t, unsigned version);
void table_fail(struct table *t, bool is_failing);
unsigned table_loads(struct table *t);
unsigned table_running(struct table *t);
shed_load_fn table_load;

/* Expect that a get succeeds with this text, or fails with code. */
void expect_text(struct shed_cache *cache, const char *key, const char *text);
void expect_origin(struct shed_cache *cache, const char *key, const char *text,
                   enum shed_origin origin);
void expect_kind(struct shed_cache *cache, const char *key,
                 enum shed_kind kind);
void expect_code(struct shed_cache *cache, const char *key, enum shed_code code,
                 struct shed_error *err);
void expect_get(struct shed_cache *cache, const char *key,
                const struct shed_get_options *options, const char *text,
                enum shed_origin origin);
void check_text(struct shed_value *value, const char *text);

/* Whether a get succeeds, with a value from there. */
bool gets_from(struct shed_cache *cache, const char *key,
               const struct shed_get_options *options, enum shed_origin origin);

/* Whether a get of k, which may fail, gives its row of version 1 from there. */
bool gets_k(enum shed_origin origin);

/* How a get ends, and an invalidation. */
enum shed_code get_code(struct shed_cache *cache, const char *key);
enum shed_code invalidate_code(struct shed_cache *cache, const char *key);

/* Whether a get of a key, or of k, which must succeed, gives this text. */
bool has_row(struct shed_cache *cache, const char *key, const char *text);
bool has_text(struct shed_cache *cache, const char *text);

/* Redis answers reads and refuses writes; and accepts them again. */
void refuse_writes(void);
void accept_writes(void);

/* How much fixture's cache still has to tell Redis. */
size_t undelivered(void);

/* A metric of the cache. */
unsigned long long gauge(struct shed_cache *cache, const char *name);

/* Whether a cache's client knows the server's clock, by which ages are counted.
 * It gets the key clock. */
bool knows_the_clock(struct shed_cache *cache);

void invalidate(struct shed_cache *cache, const char *key);
void put(struct shed_cache *cache, const char *key, const char *text);
struct shed_stats stats_of(struct shed_cache *cache);
struct shed_client_status status_of(struct shed_client *client);

/* A get on a thread of its own. */
struct getter {
    pthread_t thread;
    struct shed_cache *cache;
    const char *key;
    uint64_t timeout_ms;
    enum shed_code code;
    struct shed_value *value;
    struct shed_error error;
};
void getter_start(struct getter *g, struct shed_cache *cache, const char *key);
/* The same; its load has begun and is held when this returns. */
void getter_hold(struct getter *g, struct fixture *r, const char *key);
void getter_join(
    struct getter *g); /* the caller must still release the value */
void getter_expect(struct getter *g, const char *text, enum shed_origin origin);

/* The peer waits for loads of r's cache until a push tells it that one has
 * ended: it also looks by itself now and then. The rows are those of version 1.
 */
void peer_expect_push(struct peer *p, struct fixture *r, const char *key);

/* The same with k and a peer of its own. */
void fixture_expect_push(struct fixture *r);

/* Threads that get keys of their own repeatedly. A get may fail, but a value
 * that it returns must belong to the key. */
struct readers {
    struct shed_cache *cache;
    unsigned threads, gets, keys;
    unsigned timeout_max_ms; /* the timeouts are between 1 and this; 0: the
                                default */
};
void readers_run(const struct readers *r);

/* Wait until the client of r gets pushes. */
void wait_for_pushes(struct fixture *r);

#endif
