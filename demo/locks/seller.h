/*
 * A process that sells, for the scripts of this folder. It reads a line for
 * each buyer from its standard input, and says how it goes on its standard
 * output, a line each: "BUYER WORDS". The processes of a scene share one pipe
 * for that, so a line is one write, and the lines are in the order in which
 * things happened.
 */
#ifndef DEMO_LOCKS_SELLER_H
#define DEMO_LOCKS_SELLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <snowshed/snowshed.h>

#include "common/clock.h"
#include "common/statements.h"

struct seller_options {
    const char *redis_uri, *mysql_uri;
    uint64_t item; /* the showing, or what is on sale */
};

/* A way to sell. What fails says why. */
struct way {
    const char *name;
    const char *const *statements; /* of its connections to MySQL */
    const char *files;             /* of SQL, which make the tables */
    /* The process's part, and the thread's; NULL on failure. */
    void *(*open)(const struct way *way, const struct seller_options *options,
                  struct shed_error *err);
    void (*close)(void *process);
    void *(*enter)(void *process, struct statements *sql, char *why,
                   size_t size);
    void (*leave)(void *thread);
    /* Serve the buyer of a line. */
    bool (*serve)(void *thread, const char *line, char *why, size_t size);
};

extern const struct way way_plain, way_held;                /* cinema.c */
extern const struct way way_none, way_expire, way_snowshed; /* sale.c */

/* Say something of a buyer. */
void seller_say(uint64_t buyer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#define LINE_BYTES 200

/* The next line for any thread; false at the end. */
bool seller_hear(char line[LINE_BYTES]);

#endif
