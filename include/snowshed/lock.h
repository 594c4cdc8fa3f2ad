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
 * stopped past its lease, and a failover can forget the lock. Where a second
 * holder would do harm, pass the fencing token of the hold (shed_lock_fence) to
 * whatever is written to, and let it refuse older ones, as shed_mysql_fence of
 * snowshed/mysql.h does. src/lock/README.md shows what breaks which algorithm.
 *
 * Threads may share a handle; only the first of them asks Redis. Two handles of
 * one name exclude each other as two processes do. Handles are cheap: open
 * thousands, or one for a single use. With LEASE a name leaves a counter in
 * Redis for a day.
 *
 * The owner of a hold is the thread that called shed_lock_acquire, which may
 * acquire again (each acquire needs a release); or, after
 * shed_lock_acquire_async, the process: any thread may release the lock, and no
 * thread can enter it again. Any release ends such a hold, even a stray second
 * release of the hold before, so give each task of an event loop its own
 * handle. If a thread ends without a release, the lock lasts until its lease
 * ends.
 *
 * Other languages: LEASE and QUORUM exclude, and are excluded by, every client
 * that takes a lock with SET KEY TOKEN NX PX and compares its token before it
 * extends or deletes it (redis-py's Lock, redsync, npm's redlock). Set
 * exact_key for that. Any string at the key counts as a hold until it is
 * deleted or expires. Exclusion is all that is shared: a foreign holder has no
 * fencing token, keeps the lock for the rest of its time to live if it dies,
 * and does not queue for a fair lock; with QUORUM a server that it has locked
 * cannot vote. What we store at the key is binary: do not decode it as text.
 *
 * Threads, callbacks, memory, fork, failure: as in snowshed.h.
 */
#ifndef SNOWSHED_LOCK_H
#define SNOWSHED_LOCK_H

#include <stddef.h>
#include <stdint.h>

#include <snowshed/snowshed.h>

#ifdef __cplusplus
extern "C" {
#endif

struct shed_lock;

/* The first three send the commands that other clients of these algorithms
 * send, and their key is exactly the lock's name. LEASE uses the key
 * lock:{NAME} and keys that begin with it; with exact_key the key NAME, and
 * side keys that begin with lock:={TAG}NAME, where TAG is the part of NAME that
 * a Redis Cluster hashes. */
enum shed_lock_algorithm {
    /* SETNX, DEL. Has no lease: a holder that dies holds it forever. */
    SHED_LOCK_SETNX,
    /* SETNX, then EXPIRE; a lock without a time to live is given one and taken.
     * A client that comes between another's two commands takes its lock;
     * a release deletes the key even if another client holds the lock by then.
     */
    SHED_LOCK_EXPIRE,
    /* SETNX of the time at which the lock ends, by the holder's own wall clock;
     * a lock that has ended is taken with GETSET. Hosts whose clocks differ
     * take each other's locks; a loser's GETSET moves the winner's time.
     * Source: redis.io, documentation of SETNX, "Design pattern: Locking". */
    SHED_LOCK_TIMESTAMP,         /* in milliseconds since 1970 */
    SHED_LOCK_TIMESTAMP_SECONDS, /* in seconds, as other clients may have it */
    /* SET NX PX of a random token; release and extend compare it. Fencing
     * tokens. A failover can forget it. Shared with other languages by
     * exact_key, see above. */
    SHED_LOCK_LEASE
};

/*
 * A hold was lost: its lease ended without a renewal, or another has the lock.
 * Called once per lost hold, on a thread of the library; reason is valid during
 * the call. It must not block: set a flag, because the library does not stop
 * the work. The whole hold is over, however many times it was entered: there is
 * nothing to release.
 *
 * A loss is found by a renewal (up to a third of the lease later), by
 * shed_lock_extend, when Redis comes back, or at the lease's end. If
 * shed_lock_release finds it first, only that call reports it.
 */
typedef void shed_lock_lost_fn(void *user, struct shed_lock *lock,
                               const struct shed_error *reason);

/* Fill it with SHED_LOCK_OPTIONS_INIT. */
struct shed_lock_options {
    size_t size;
    uint64_t algorithm;      /* enum shed_lock_algorithm; SHED_LOCK_LEASE */
    uint64_t lease_ms;       /* [10, 86400000]; how long a hold lasts without a
                                renewal; not used by SETNX */
    uint64_t watchdog_ms;    /* [0, 10 years]; for how long a watchdog renews
                                the lease, each time at a third of it, until
                                the release or the owning thread's end; 0:
                                never */
    uint64_t fair;           /* [0, 1]; 1: waiters get it in the order in which
                                they came; LEASE only, and all users of the
                                lock must agree on it */
    uint64_t death_grace_ms; /* [0, 60000]; LEASE and QUORUM: a lock whose
                                holder has been disconnected from Redis for this
                                long is taken before its lease ends, and such
                                waiters of a fair lock lose their place; 0:
                                never */
    shed_lock_lost_fn *on_lost; /* may be NULL */
    void *user;                 /* passed to on_lost */
    uint64_t exact_key; /* [0, 1]; LEASE and QUORUM: 1: the key in Redis is the
                           name itself, to share the lock with other clients;
                           all users of the lock must agree on it */
};

#define SHED_LOCK_WATCHDOG_ALWAYS UINT64_C(315360000000) /* 10 years */

#define SHED_LOCK_OPTIONS_INIT                                                 \
    {                                                                          \
        sizeof(struct shed_lock_options), SHED_LOCK_LEASE, 30000,              \
            SHED_LOCK_WATCHDOG_ALWAYS, 0, 150, NULL, NULL, 0                   \
    }

#define SHED_LOCK_NAME_MAX_BYTES 1024 /* a resource of the guard's: 255 */
#define SHED_LOCK_CLIENTS_MAX 15

/*
 * Open a handle to the lock of a name, any 1 to SHED_LOCK_NAME_MAX_BYTES bytes.
 * Nothing is sent yet. The lock keeps the client alive until it is closed.
 *
 * Returns: SHED_OK and *out; SHED_EBUSY (no random numbers available).
 */
SHED_API SHED_MUST_CHECK enum shed_code
shed_lock_open(struct shed_client *client, struct shed_bytes name,
               const struct shed_lock_options *options, struct shed_lock **out,
               struct shed_error *err);

/*
 * Open a handle to a lock that is kept on a majority of several independent
 * servers (Redlock: redis.io, "Distributed Locks with Redis"), so that it
 * survives the failure of a minority. The algorithm is SHED_LOCK_LEASE on each.
 *
 * clients is an array of an odd number of clients, 1 to SHED_LOCK_CLIENTS_MAX,
 * each connected to a server of its own. The lock keeps them alive. The first
 * client's thread drives it.
 *
 * A server that has restarted may have forgotten the lock, so it abstains until
 * it has been running for lease_ms, by INFO: all users of the lock must agree
 * on lease_ms. A server that refuses INFO counts as failed. The servers' clocks
 * must not be set forward by a lease: see src/lock/README.md.
 *
 * Returns: as shed_lock_open; SHED_EINVAL also for a wrong count or algorithm.
 */
SHED_API SHED_MUST_CHECK enum shed_code
shed_lock_open_quorum(struct shed_client *const *clients, size_t count,
                      struct shed_bytes name,
                      const struct shed_lock_options *options,
                      struct shed_lock **out, struct shed_error *err);

/*
 * Check, before the first acquire, that Redis (with QUORUM: each server) grants
 * the rights that the lock needs: as shed_cache_probe does for a cache.
 *
 * Blocks: one round trip for each server, timeout_ms at most (0: the client's
 * command_timeout_ms).
 * Returns: as shed_cache_probe.
 */
SHED_API SHED_MUST_CHECK enum shed_code shed_lock_probe(struct shed_lock *lock,
                                                        uint64_t timeout_ms,
                                                        struct shed_error *err);

/*
 * Close a handle, and release the lock if any thread holds it. No other call
 * may be under way; asynchronous acquires end with SHED_ECLOSED before this
 * returns. NULL is allowed.
 *
 * Blocks: at most the client's command_timeout_ms; in a callback not at all.
 */
SHED_API void shed_lock_close(struct shed_lock *lock);

#define SHED_LOCK_WAIT_MAX_MS ((uint64_t)86400000)

/*
 * Acquire the lock, waiting for it up to wait_ms (0: one try; at most
 * SHED_LOCK_WAIT_MAX_MS). If Redis cannot be reached, it keeps trying until
 * then. The thread that holds the lock may acquire it again; acquires are
 * counted.
 *
 * Blocks: wait_ms, then at most command_timeout_ms for the last try, or twice
 * that if something has to be given back first. A client's first acquire waits
 * in any case until its session with Redis is up or has failed (a few ms),
 * because the session shows others that the holder is alive.
 * Returns: SHED_OK: it is held. SHED_ETIMEDOUT: others held it all the time.
 * SHED_EREDIS: Redis (with QUORUM: a majority) could not be reached; the lock
 * may exist there without a holder until Redis can be reached again, or a lease
 * has passed (SHED_LOCK_SETNX: forever, if the handle is closed before that).
 * SHED_EINVAL also: the key holds something that is not a lock of this
 * algorithm. SHED_EDENIED. SHED_EBUSY (no random numbers available, or 2^32
 * entries).
 */
SHED_API SHED_MUST_CHECK enum shed_code
shed_lock_acquire(struct shed_lock *lock, uint64_t wait_ms,
                  struct shed_error *err);

/*
 * How an asynchronous call ended: code is what the blocking call would have
 * returned; reason is valid during the call, and NULL with SHED_OK.
 *
 * Called on the thread of the lock's first client. It must not block: for an
 * event loop, let it write to an eventfd. It may call the three functions below
 * and shed_lock_fence. It may run before the call that it belongs to has
 * returned, so prepare what it uses before that call.
 */
typedef void shed_lock_done_fn(void *user, struct shed_lock *lock,
                               enum shed_code code,
                               const struct shed_error *reason);

/*
 * Acquire without blocking; the hold is the process's.
 *
 * Calls back: done, exactly once if this returns SHED_OK, else never: when the
 * lock is held, when wait_ms is over, when the acquire is cancelled, or before
 * shed_lock_close returns. user must live until then.
 * Returns: SHED_OK: done gets a code of shed_lock_acquire, or SHED_ECLOSED.
 * SHED_EBUSY (no random numbers available), SHED_ECLOSED (called from a done
 * while the lock is being closed).
 */
SHED_API SHED_MUST_CHECK enum shed_code
shed_lock_acquire_async(struct shed_lock *lock, uint64_t wait_ms,
                        shed_lock_done_fn *done, void *user,
                        struct shed_error *err);

/*
 * Cancel the asynchronous acquires of lock that were given this user pointer
 * and have not ended yet. The done of each is called with SHED_ETIMEDOUT, even
 * if Redis grants the lock at the same time (it is given back): at once, or
 * after the answer to the command under way, perhaps before this returns.
 *
 * Does not block. Returns: how many were cancelled. 0: done was called, or is
 * about to be, perhaps with SHED_OK: then release the lock.
 */
SHED_API size_t shed_lock_cancel(struct shed_lock *lock, const void *user);

/*
 * Release without blocking; a done may do so. When this has returned SHED_OK
 * the lock is no longer held here, and the next acquire by this handle comes
 * after the release; others may find it taken until done is called.
 *
 * Calls back: done, exactly once if this returns SHED_OK, else never; before
 * shed_lock_close returns. user must live until then.
 * Returns: SHED_OK: done gets a code of shed_lock_release. SHED_ELOST: it was
 * not held. Any other code (SHED_ECLOSED: called from a done while the lock is
 * being closed): it is held as before.
 */
SHED_API SHED_MUST_CHECK enum shed_code
shed_lock_release_async(struct shed_lock *lock, shed_lock_done_fn *done,
                        void *user, struct shed_error *err);

/*
 * Release the lock: the release that matches the first acquire removes it from
 * Redis.
 *
 * Blocks: at most command_timeout_ms, or twice that if a connection breaks;
 * while a client connects, connect_timeout_ms counts instead.
 * Returns: SHED_OK: it was held until now. SHED_ELOST: this thread does not
 * hold it: it was lost, and another may have worked at the same time, or it
 * never was this thread's, or it is released already (the reason says which).
 * SHED_EREDIS, SHED_ETIMEDOUT, SHED_EDENIED, SHED_ENOMEM: not confirmed; the
 * lock is given up here, and removed from Redis when that can be reached, or
 * ends with its lease. SHED_EINVAL, SHED_EFORKED: it is held as before.
 */
SHED_API SHED_MUST_CHECK enum shed_code
shed_lock_release(struct shed_lock *lock, struct shed_error *err);

/*
 * Let the lease last lease_ms from now (0: the option's); the watchdog renews
 * with this length from now on. Without a watchdog, this is how Redis is asked
 * whether the lock still exists. A lease that has ended is not revived. With a
 * quorum lease_ms must not exceed the option's.
 *
 * Blocks: as shed_lock_release.
 * Returns: SHED_OK; SHED_ELOST: this thread no longer holds it; SHED_EREDIS,
 * SHED_ETIMEDOUT, SHED_EDENIED: not confirmed: the hold lasts as long as it
 * would have, or lease_ms if that is shorter.
 */
SHED_API SHED_MUST_CHECK enum shed_code
shed_lock_extend(struct shed_lock *lock, uint64_t lease_ms,
                 struct shed_error *err);

/* Milliseconds for which the hold of this thread (or of the process) is still
 * safe, by the clock of this host less a margin for drift; 0: there is no hold.
 * SHED_LOCK_SETNX: UINT64_MAX while held. Redis is not asked. */
SHED_API uint64_t shed_lock_remaining_ms(const struct shed_lock *lock);

/* Whether this thread (or the process) safely holds the lock. */
SHED_INLINE int shed_lock_is_mine(const struct shed_lock *lock)
{
    return shed_lock_remaining_ms(lock) > 0;
}

/*
 * A fencing token. number grows with every holder of a lock, as long as Redis
 * keeps its data or its clock does not go back (with a quorum: as long as all
 * servers keep their data, or their clocks differ by less than lease_ms); 0: no
 * token. owner is random: it distinguishes holders that got the same number
 * nonetheless.
 */
struct shed_fence {
    uint64_t number;
    unsigned char owner[16];
};

/* The token of this thread's (or the process's) hold.
 * Returns: SHED_OK and *out; SHED_ELOST: there is no such hold; SHED_EINVAL
 * also: the algorithm has no tokens. On failure *out is zero. */
SHED_API SHED_MUST_CHECK enum shed_code shed_lock_fence(struct shed_lock *lock,
                                                        struct shed_fence *out,
                                                        struct shed_error *err);

/*
 * Make the numbers of later holders exceed number, when what is written to has
 * seen a higher number than Redis gave, because Redis lost its data or its
 * clock went back. Release the lock, call this, acquire again. It never lowers
 * a number.
 *
 * Blocks: as shed_lock_release.
 * Returns: SHED_OK; SHED_EINVAL also: no tokens, or a number of 2^52 or more;
 * SHED_EREDIS, SHED_ETIMEDOUT, SHED_EDENIED.
 */
SHED_API SHED_MUST_CHECK enum shed_code
shed_lock_advance(struct shed_lock *lock, uint64_t number,
                  struct shed_error *err);

#ifdef __cplusplus
}
#endif

#endif
