/* What the tests of gets with options share: a cache whose row k can be made
 * old, and calls with options. */
#ifndef CALLS_H
#define CALLS_H

#include "support/ageing.h"
#include "support/fixture.h"

/* The age of a row that is still fresh, and a bound below it. Both are long
 * compared with any test. */
#define OLD_MS (AGEING_TTL_MS / 2)
#define MAX_AGE_MS (AGEING_TTL_MS / 4)

extern const struct shed_get_options get_defaults;

/* Open everything, with the keys k and clock loaded and the clock known. */
void calls_up(uint64_t revalidate_ms, uint64_t if_error_ms);

/* The same in two steps, for other options between them. */
void calls_init(uint64_t revalidate_ms, uint64_t if_error_ms);
void calls_open(void);

/* Make k that old, and let the table have a newer version of it. */
void age_k(uint64_t by_ms);

/* Open everything. The getter's flight began before there was a row; the peer
 * has stored one that is old at once, with which the flight is about to answer
 * when the table is released. */
void calls_overtake(struct getter *getter, struct peer *peer);

/* Loads after those of the set-up. */
unsigned loads(void);

/* Calls that must end like this. */
void expect_with(const char *key, struct shed_get_options options,
                 const char *text, enum shed_origin origin);
void expect_absent(const char *key, struct shed_get_options options);
void expect_failure(const char *key, struct shed_get_options options,
                    enum shed_code code);

/* A call for k on a thread of its own. */
struct call {
    pthread_t thread;
    struct shed_cache *cache;
    struct shed_get_options options;
    enum shed_code code;
    struct shed_value *value;
};
void call_start(struct call *c, struct shed_cache *cache,
                struct shed_get_options options);
void call_join(struct call *c); /* the caller must still release the value */
void call_expect(struct call *c, const char *text);

#endif
