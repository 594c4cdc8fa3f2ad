/*
 * Distributed locks: one holder at a time across all processes and hosts.
 *
 *     if (shed_lock_open(client, shed_str("invoices"), NULL, &lock, &err) ||
 *         shed_lock_acquire(lock, 2000, &err))
 *         ... err says why not
 *     ... work ...
 *     if (shed_lock_release(lock, &err))
 *         ... it was lost before the end of the work
 *
 * No lock in Redis keeps a second holder out for certain: a process can be
 * stopped past its lease, and a failover can forget the lock. Where that would
 * do harm, pass the hold's fencing token (shed_lock_fence) to what is written,
 * and let it refuse older tokens, as shed_mysql_fence does.
 *
 * Handles of one name exclude each other as processes do. They are cheap: open
 * thousands, or one for a single use.
 *
 * A hold by shed_lock_acquire is the calling thread's, which may acquire again
 * (each acquire needs a release); if the thread ends, the lock lasts until its
 * lease ends. A hold by shed_lock_acquire_async is the process's: any release
 * by any thread ends it, so give each task of an event loop its own handle.
 *
 * src/lock/README.md compares the algorithms.
 */
#ifndef SNOWSHED_LOCK_H
#define SNOWSHED_LOCK_H

#include <snowshed/snowshed.h>

#ifdef __cplusplus
extern "C" {
#endif

struct shed_lock;

/* How a lock works, and what breaks it. All but LEASE send the commands of
 * other clients of these algorithms, to the key NAME. LEASE uses lock:{NAME},
 * or with exact_key NAME, and keys beside it. */
enum shed_lock_algorithm {
    /* SETNX, DEL: a holder that dies holds it forever */
    SHED_LOCK_SETNX,
    /* SETNX, then EXPIRE: a client that comes between the two takes the lock;
     * a release deletes another's, too */
    SHED_LOCK_EXPIRE,
    /* SETNX of the time at which it ends, then GETSET (redis.io, "SETNX"):
     * hosts whose clocks differ take each other's locks */
    SHED_LOCK_TIMESTAMP,         /* milliseconds since 1970 */
    SHED_LOCK_TIMESTAMP_SECONDS, /* seconds */
    /* SET NX PX of a random token, which release and extend compare; fencing
     * tokens: a failover can forget it */
    SHED_LOCK_LEASE
};

/* A hold was lost, however often it was entered: its lease ended without a
 * renewal, or another has the lock. Called once, by a renewal, shed_lock_extend
 * or the lease's end; shed_lock_release only returns it. reason is valid during
 * the call. It must not block: set a flag, by which the work stops. */
typedef void shed_lock_lost_fn(void *user, struct shed_lock *lock,
                               const struct shed_error *reason);

struct shed_lock_options {
    size_t size;
    uint64_t algorithm; /* enum shed_lock_algorithm; SHED_LOCK_LEASE */
    uint64_t lease_ms;  /* 10..86400000 (30000); how long a hold lasts without a
                           renewal; not used by SETNX */
    /* 0..10 years (10 years); for how long a watchdog renews the lease, at a
     * third of it, until the release or the end of the thread; 0: never */
    uint64_t watchdog_ms;
    uint64_t fair; /* 0..1 (0); 1: first come, first served; LEASE only;
                      all users of the lock set the same */
    uint64_t death_grace_ms; /* 0..60000 (150); LEASE and QUORUM: after so long
                                without a connection to Redis, a holder loses
                                the lock and a waiter its place; 0: never */
    shed_lock_lost_fn *on_lost; /* or NULL */
    void *user;
    /* 0..1 (0); LEASE and QUORUM: 1: the key in Redis is the name itself, for
     * clients of SET KEY TOKEN NX PX (redis-py's Lock, redsync, npm's redlock);
     * all users of the lock set the same */
    uint64_t exact_key;
    /* 0..100 (0); LEASE: an acquire that fewer replicas acknowledge (WAIT)
     * gives the lock back and goes on trying. A failover to one of them keeps
     * the lock, perhaps with an older lease */
    uint64_t replicas;
};

#define SHED_LOCK_WATCHDOG_ALWAYS UINT64_C(315360000000) /* 10 years */

#define SHED_LOCK_OPTIONS_INIT                                                 \
    {                                                                          \
        sizeof(struct shed_lock_options), SHED_LOCK_LEASE, 30000,              \
            SHED_LOCK_WATCHDOG_ALWAYS, 0, 150, NULL, NULL, 0, 0                \
    }

#define SHED_LOCK_NAME_MAX_BYTES 1024
#define SHED_LOCK_CLIENTS_MAX 15

/* Open a handle to the lock of a name, any 1 to SHED_LOCK_NAME_MAX_BYTES bytes.
 * Nothing is sent yet.
 * Returns: also SHED_EBUSY. */
SHED_API SHED_MUST_CHECK enum shed_code
shed_lock_open(struct shed_client *client, struct shed_bytes name,
               const struct shed_lock_options *options, struct shed_lock **out,
               struct shed_error *err);

/*
 * Open a handle to a lock on a majority of independent servers (Redlock:
 * redis.io, "Distributed Locks with Redis"). The algorithm is SHED_LOCK_LEASE
 * on each.
 *
 * clients are an odd number, 1 to SHED_LOCK_CLIENTS_MAX, each of a server of
 * its own; callbacks run on the first one's thread. All users must agree on
 * lease_ms: a server that has restarted may have forgotten the lock, so it
 * abstains until it has been up for that long, by INFO. No server's clock may
 * be set forward by a lease.
 *
 * Returns: also SHED_EBUSY.
 */
SHED_API SHED_MUST_CHECK enum shed_code
shed_lock_open_quorum(struct shed_client *const *clients, size_t count,
                      struct shed_bytes name,
                      const struct shed_lock_options *options,
                      struct shed_lock **out, struct shed_error *err);

/* Check that Redis (with QUORUM: each server) grants the rights that the lock
 * needs, as shed_cache_probe does. timeout_ms 0: command_timeout_ms. */
SHED_API SHED_MUST_CHECK enum shed_code shed_lock_probe(struct shed_lock *lock,
                                                        uint64_t timeout_ms,
                                                        struct shed_error *err);

/* Close a handle, and release the lock if it is held. No other call may be
 * under way; asynchronous acquires end with SHED_ECLOSED.
 * Blocks: at most command_timeout_ms. */
SHED_API void shed_lock_close(struct shed_lock *lock);

#define SHED_LOCK_WAIT_MAX_MS ((uint64_t)86400000)

/*
 * Acquire the lock, waiting for it up to wait_ms (0: one try; at most
 * SHED_LOCK_WAIT_MAX_MS), also while Redis cannot be reached.
 *
 * Blocks: wait_ms, then at most twice command_timeout_ms, or four times with
 * replicas. A client's first acquire also waits until its session is up or has
 * failed (a few ms).
 * Returns: SHED_OK: it is held. SHED_ETIMEDOUT: others held it all the time.
 * SHED_EREDIS: too few replicas acknowledged it, and it was given back; or
 * Redis (with QUORUM: a majority) could not be reached, where the lock may be
 * taken until it can be, or a lease has passed (SETNX: forever, if the handle
 * is closed before). SHED_EINVAL: the key holds something else. SHED_EDENIED,
 * SHED_EBUSY.
 */
SHED_API SHED_MUST_CHECK enum shed_code
shed_lock_acquire(struct shed_lock *lock, uint64_t wait_ms,
                  struct shed_error *err);

/* How an asynchronous call ended: code and reason are as for shed_done_fn
 * (async.h).
 * Called exactly once for a call that returned SHED_OK, else never; on the
 * client's thread, perhaps before that call has returned, and before
 * shed_lock_close returns. It must not block: for an event loop, write to an
 * eventfd. */
typedef void shed_lock_done_fn(void *user, struct shed_lock *lock,
                               enum shed_code code,
                               const struct shed_error *reason);

/* Acquire without blocking; the hold is the process's.
 * Returns: also SHED_EBUSY; SHED_ECLOSED: called from a done while the lock is
 * being closed. */
SHED_API SHED_MUST_CHECK enum shed_code
shed_lock_acquire_async(struct shed_lock *lock, uint64_t wait_ms,
                        shed_lock_done_fn *done, void *user,
                        struct shed_error *err);

/* Cancel the asynchronous acquires that were given this user pointer: done gets
 * SHED_ETIMEDOUT, at once or after the answer to the command under way, perhaps
 * before this returns.
 * Returns: how many were cancelled. 0: done was called, or is about to be,
 * perhaps with SHED_OK: then release the lock. */
SHED_API size_t shed_lock_cancel(struct shed_lock *lock, const void *user);

/* Release without blocking. After SHED_OK this handle can acquire again; others
 * may find the lock taken until done is called.
 * Returns: also SHED_ELOST: it was not held; SHED_ECLOSED: as
 * shed_lock_acquire_async. With other codes it is held as before. */
SHED_API SHED_MUST_CHECK enum shed_code
shed_lock_release_async(struct shed_lock *lock, shed_lock_done_fn *done,
                        void *user, struct shed_error *err);

/*
 * Release the lock: the release that matches the first acquire removes it from
 * Redis.
 *
 * Blocks: at most twice command_timeout_ms; while a client connects,
 * connect_timeout_ms counts instead.
 * Returns: SHED_OK: it was held until now. SHED_ELOST: this thread does not
 * hold it; if it was lost (the reason says so), another may have worked at the
 * same time. SHED_EREDIS, SHED_ETIMEDOUT, SHED_EDENIED, SHED_ENOMEM: not
 * confirmed; the lock is given up here, and ends in Redis when that can be
 * reached, or with its lease. SHED_EINVAL, SHED_EFORKED: it is held as before.
 */
SHED_API SHED_MUST_CHECK enum shed_code
shed_lock_release(struct shed_lock *lock, struct shed_error *err);

/*
 * Let the lease last lease_ms from now (0: the option's, which is the most with
 * a quorum), in later renewals, too. Without a watchdog, this asks Redis
 * whether the lock still exists. A lease that has ended is not revived.
 *
 * Blocks: as shed_lock_release.
 * Returns: also SHED_ELOST; SHED_EREDIS, SHED_ETIMEDOUT, SHED_EDENIED: not
 * confirmed: the hold lasts as long as it would have, or lease_ms if that is
 * shorter.
 */
SHED_API SHED_MUST_CHECK enum shed_code
shed_lock_extend(struct shed_lock *lock, uint64_t lease_ms,
                 struct shed_error *err);

/* Returns: for how long the hold of this thread, or of the process, is safe,
 * less a margin for drift; 0: there is none; UINT64_MAX: SETNX. Redis is not
 * asked. */
SHED_API uint64_t shed_lock_remaining_ms(const struct shed_lock *lock);

/* Whether there is such a hold. */
SHED_INLINE int shed_lock_is_mine(const struct shed_lock *lock)
{
    return shed_lock_remaining_ms(lock) > 0;
}

/* A fencing token. number grows with every holder of a lock, as long as Redis
 * keeps its data or its clock does not go back (with a quorum: as long as all
 * servers keep their data, or their clocks differ by less than lease_ms). owner
 * is random, and tells apart holders that got the same number nonetheless. */
struct shed_fence {
    uint64_t number;
    unsigned char owner[16];
};

/* Get that hold's token.
 * Returns: also SHED_ELOST: there is none; SHED_EINVAL: the algorithm has no
 * tokens. On failure *out is zero. */
SHED_API SHED_MUST_CHECK enum shed_code shed_lock_fence(struct shed_lock *lock,
                                                        struct shed_fence *out,
                                                        struct shed_error *err);

/*
 * Let later holders have numbers above number, never lower ones than now: for
 * when what is written to has seen a higher number than Redis gave, because
 * Redis lost its data or its clock went back. Release the lock, whatever that
 * returns, call this, acquire again.
 *
 * Blocks: as shed_lock_release.
 * Returns: also SHED_EREDIS, SHED_ETIMEDOUT, SHED_EDENIED; SHED_EINVAL: no
 * tokens, or a number of 2^52 or more.
 */
SHED_API SHED_MUST_CHECK enum shed_code
shed_lock_advance(struct shed_lock *lock, uint64_t number,
                  struct shed_error *err);

#ifdef __cplusplus
}
#endif

#endif
