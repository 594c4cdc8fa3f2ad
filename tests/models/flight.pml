/* What a process may give its callers: the flight of one key (src/flight/flight.c)
 * with callers that join at any moment, and its invalidations (src/cache/write.c)
 * or those of another process.
 *
 *   K    the entry in Redis, as in entry.pml: NOTHING, a LEASE or a VALUE
 *   db   the version of the row in the database
 *   told the newest row that an invalidation which has returned has told of
 *
 * A caller takes a look at K, and if that does not answer it, joins the flight
 * of its process, or makes one. Checked when it is answered:
 *   own writes  it gets nothing older than told was when it came. What an
 *               invalidation of another process promises is the same: once it
 *               has returned, no caller that comes later reads an older row.
 * and whenever a load begins:
 *   one loader  in the process, at most one flight that can be joined loads
 *
 * The machine's states are program points here: acquire, load, publish. Each
 * answers callers up to its cutoff, and goes round again for later ones. A load
 * may be without a lease (Redis is down, or has no memory)
 * at any moment; an invalidation may fail, and tells of nothing then.
 *
 * REMOTE lets the writer be in another process; ANOTHER adds a flight in such a
 * process. Two things keep own writes: an invalidation
 * detaches the flight, and answers have cutoffs. Each is enough without the
 * other (NO_DETACH is sound; it spares later callers the wait for a load whose
 * answer is not for them), but what another process has invalidated is kept
 * by the cutoffs alone. So each of these must make the model fail with REMOTE,
 * and without it together with NO_DETACH:
 *   LOADED_FOR_ALL     a load that was invalidated answers all who wait
 *   UNLEASED_FOR_ALL   so does one without a lease
 *   HIT_FOR_ALL        so does an entry that acquire has found (with ANOTHER)
 * and this one always:
 *   TWO_TO_JOIN        a caller makes a flight though one can be joined
 */
#ifndef CALLERS
#define CALLERS 2
#endif
#define SLOTS 2 /* flights at a time, one of which can be joined */

#define NOTHING 0
#define LEASE 1
#define VALUE 2
#define OTHER 7 /* of K_holder: a flight of another process */

byte db = 1;
byte told = 0;
byte K = NOTHING, K_version, K_holder, K_row;

/* Callers are bits: 1, 2, ... ; flights are numbered from 1. */
byte waiting[SLOTS + 1]; /* who waits at a flight */
bit is_used[SLOTS + 1], is_detached[SLOTS + 1], is_loading[SLOTS + 1];
byte answer[CALLERS + 1]; /* the row that a caller was given; 0 for none yet */
byte version[SLOTS + 2];  /* the last is the other process's */
byte unknown;

#define IS_KNOWN(x) \
    (x == K_version || x == version[1] || x == version[2] || x == version[3])

inline new_version(out)
{
    unknown = 1;
    do
    :: IS_KNOWN(unknown) -> unknown++
    :: else -> break
    od;
    out = unknown;
    unknown = 0
}

inline clear()
{
    K = NOTHING;
    K_version = 0;
    K_holder = 0;
    K_row = 0
}

/* acquire.lua; row is what it found, version is 0 if it does not lead. A lease
 * of another may be over at any moment. */
inline acquire(i, who)
{
    atomic {
        version[i] = 0;
        row = 0;
        if
        :: K == NOTHING ->
           K = LEASE;
           new_version(K_version);
           version[i] = K_version;
           K_holder = who
        :: K == LEASE -> version[i] = K_version; K_holder = who
        :: K == LEASE && K_holder != who -> skip /* WAIT */
        :: K == VALUE -> row = K_row
        fi
    }
}

#define IS_MINE(i) (K == LEASE && K_version == version[i])

/* publish.lua; is_kept says whether row is what K holds now. */
inline publish(i)
{
    atomic {
        is_kept = 1;
        if
        :: IS_MINE(i) -> clear(); K = VALUE; K_row = row; new_version(K_version)
        :: !IS_MINE(i) && K == VALUE -> row = K_row /* SUPERSEDED */
        :: !IS_MINE(i) -> is_kept = 0 /* INVALIDATED; a value is over */
        fi
    }
}

/* Give row to the callers in a set; where it is in Redis, callers that come now
 * read it there. */
inline give(set, is_in_redis)
{
    atomic {
        c = 1;
        do
        :: c <= CALLERS ->
           if
           :: set & waiting[me] & (1 << c) -> answer[c] = row
           :: else -> skip
           fi;
           c++
        :: else -> break
        od;
        waiting[me] = waiting[me] & ~(set);
        set = 0;
        c = 0;
        row = 0;
        version[me] = 0;
        if
        :: is_in_redis -> is_detached[me] = 1
        :: else -> skip
        fi
    }
}

#ifdef LOADED_FOR_ALL
#define LOADED_UPTO waiting[me]
#else
#define LOADED_UPTO load_cutoff
#endif
#ifdef UNLEASED_FOR_ALL
#define UNLEASED_UPTO waiting[me]
#else
#define UNLEASED_UPTO load_cutoff
#endif
#ifdef HIT_FOR_ALL
#define HIT_UPTO waiting[me]
#else
#define HIT_UPTO cutoff
#endif

inline begin_load()
{
    atomic {
        assert(is_detached[me] ||
               !(is_loading[3 - me] && !is_detached[3 - me]));
        load_cutoff = waiting[me];
        is_loading[me] = 1
    };
    atomic { row = db; is_loading[me] = 0 }
}

proctype Flight(byte me)
{
    byte cutoff, load_cutoff, row, c;
    bit is_kept;
    do
    :: atomic { waiting[me] == 0 -> is_used[me] = 0; break }
    :: atomic { waiting[me] != 0 -> cutoff = waiting[me] };
       if
       :: acquire(me, me);
          if
          :: atomic { version[me] == 0 && row != 0 -> cutoff = HIT_UPTO };
             give(cutoff, true)
          :: version[me] == 0 && row == 0 -> cutoff = 0 /* WAIT */
          :: version[me] != 0 ->
             begin_load();
             cutoff = waiting[me];
             publish(me);
             if
             :: is_kept -> give(cutoff, true)
             :: atomic { !is_kept -> cutoff = LOADED_UPTO };
                give(cutoff, false)
             fi;
             atomic { load_cutoff = 0; is_kept = 0 }
          fi
       :: begin_load(); /* Redis is down */
          atomic { cutoff = UNLEASED_UPTO; load_cutoff = 0 };
          give(cutoff, false)
       fi
    od;
    atomic { cutoff = 0; version[me] = 0 }
}

#ifdef TWO_TO_JOIN
#define CAN_JOIN(i) (false)
#else
#define CAN_JOIN(i) (is_used[i] && !is_detached[i])
#endif

inline make_flight(i)
{
    is_used[i] = 1;
    is_detached[i] = 0;
    waiting[i] = 1 << id;
    run Flight(i)
}

proctype Caller(byte id)
{
    byte floor;
    floor = told;
    if
    :: atomic { K == VALUE -> assert(K_row >= floor); goto done }
    :: true -> skip /* it was not there, or not looked for */
    fi;
    atomic {
        if
        :: CAN_JOIN(1) -> waiting[1] = waiting[1] | (1 << id)
        :: CAN_JOIN(2) -> waiting[2] = waiting[2] | (1 << id)
        :: else ->
           if
           :: !is_used[1] -> make_flight(1)
           :: is_used[1] && !is_used[2] -> make_flight(2)
           fi
        fi
    };
    atomic { answer[id] != 0 -> assert(answer[id] >= floor); answer[id] = 0 };
done:
    floor = 0
}

/* Its process's, or another's: the difference is whether the flight is
 * detached. An invalidation that fails, because Redis is down, tells nothing. */
proctype Writer(bit is_own)
{
    byte mine;
    atomic { db++; mine = db };
    if
    :: atomic { clear() };
#ifndef NO_DETACH
       atomic {
           if
           :: is_own && is_used[1] -> is_detached[1] = 1
           :: else -> skip
           fi;
           if
           :: is_own && is_used[2] -> is_detached[2] = 1
           :: else -> skip
           fi
       };
#endif
       atomic {
           if
           :: told < mine -> told = mine
           :: else -> skip
           fi
       }
    :: true -> skip
    fi;
    mine = 0
}

/* A flight of another process; it may crash. */
proctype Other()
{
    byte row;
    bit is_kept;
    acquire(3, OTHER);
    if
    :: version[3] != 0 -> row = db; publish(3)
    :: true -> skip
    fi;
    atomic { version[3] = 0; row = 0; is_kept = 0 }
}

init
{
    atomic {
        run Caller(1);
        run Caller(2);
#ifndef REMOTE
        run Writer(1)
#else
        run Writer(0)
#endif
#ifdef ANOTHER
        ; run Other()
#endif
    }
}
