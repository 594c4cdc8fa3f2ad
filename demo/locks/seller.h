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

#include <hiredis/hiredis.h>
#include <snowshed/snowshed.h>

#include "common/clock.h"
#include "common/statements.h"

/* A process. */
struct seller {
    const struct way *way;
    const char *redis_uri, *mysql_uri;
    uint64_t item;              /* the showing, or what is on sale */
    struct shed_client *client; /* NULL: it sells without locks */
    void *shop;                 /* of open */
};

/* What a thread has to serve a buyer with. */
struct counter {
    struct seller *seller;
    struct statements *db;
    redisContext *redis; /* NULL with locks */
    /* Of the call that failed, unless db has one; when a line comes, that it is
     * of another kind. */
    struct shed_error err;
};

/* A way to sell. What fails says why. */
struct way {
    const char *name;
    const char *const *statements; /* of its connections to MySQL */
    const char *files;             /* of SQL, which make the tables */
    bool has_locks;
    /* Serve the buyer of a line. */
    bool (*serve)(struct counter *counter, const char *line);
    /* What the process has besides; NULL: nothing. */
    enum shed_code (*open)(struct seller *seller, struct shed_error *err);
    void (*close)(void *shop); /* half-built, or NULL, is allowed */
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
