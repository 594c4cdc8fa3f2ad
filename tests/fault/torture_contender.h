/*
 * A contender of the lock torture: a process that repeatedly takes the lock,
 * records that it is inside, writes, and leaves, until it is told to stop. It
 * is forked before any thread is started.
 */
#ifndef TORTURE_CONTENDER_H
#define TORTURE_CONTENDER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include <snowshed/lock.h>

#include "fault/torture_judge.h"
#include "support/pulse.h"

enum { CONTENDERS = 4, TORTURE_SERVERS_MAX = 5 };

/* What a contender does between two commands of an algorithm, once. */
enum torture_hook {
    HOOK_NONE,
    HOOK_DIE_BEFORE_EXPIRE,
    HOOK_STOP_BEFORE_EXPIRE,
    HOOK_LATE_GETSET /* send GETSET when another has entered */
};

/* Shared by all processes of a cell. */
struct torture_shared {
    atomic_bool is_over;
    atomic_bool shall_stay; /* the next one that enters stays inside */
    atomic_uint victim;     /* that contender; TORTURE_NOBODY until then */
    atomic_int hook;        /* for the first contender that reaches it */
    atomic_uint hooked;     /* that contender */
    atomic_uint entries;
    atomic_uint entries_before; /* entries before the hook was set */
    atomic_uint writes;         /* first writes of each entry */
    atomic_uint inside; /* the contender that entered last and has not left */
    struct pulse pulses[CONTENDERS];
    /* why each lost the lock last; to be read when it has ended */
    char loss[CONTENDERS][SHED_REASON_BYTES];
};

struct torture_setup {
    struct torture_shared *shared;
    const char *uris[TORTURE_SERVERS_MAX];
    size_t servers;
    const char *mysql_uri;
    const char *database;
    const char *file; /* of the records */
    struct shed_lock_options options;
    time_t skew_s;         /* of the contender's wall clock */
    unsigned get_delay_us; /* delay before each GET */
    unsigned number;       /* the contender's */
};

/* Fork one. */
pid_t torture_contender_start(const struct torture_setup *setup);

/* Append a record to the file. */
void torture_record(const char *file, const struct torture_record *record);

uint64_t torture_now_us(void);

/* A program that uses this is linked with --wrap for send and clock_gettime. */
#define TORTURE_LOCK_NAME "torture"

#endif
