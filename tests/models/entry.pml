/* One key in Redis as the scripts in src/redis treat it, with processes that
 * crash, repeat themselves and are overtaken at every step.
 *
 *   K   the entry: NOTHING, a LEASE, a VALUE or a failure MARKER. version is a
 *       lease's data version or a value's nonce, row is the version of the row
 *       that a value was made from.
 *   R   K:refresh, the lease or the marker of a refresh
 *   db  the version of the row in the database; each writer commits one
 *
 * Each script is one atomic step, because Redis runs scripts so. Between two
 * steps anything may happen: that is how a slow network, a stopped process and
 * a late command are covered. Not in the model: the clock (a lease may end and
 * an entry may vanish at any moment, or not; so a value that has ended is one that
 * may be refreshed, or has vanished when acquire comes), foreign and corrupt entries (acquire
 * replaces them like NOTHING), payloads, and callers (test_sim has them).
 *
 * Checked at every step:
 *   stale set   what is stored was read after the last invalidation of the key
 *               (floor), and what is stored as fresh after the last expiry (soft)
 *   one loader  a lease is not given while another flight's lasts
 * and at the end, when all writers have done their part: a fresh value is the
 * row that is in the database.
 *
 * Each of these definitions takes out one thing, and must make the model fail:
 *   NO_VERSION           publish does not compare the data version
 *   NO_NONCE             the publish of a refresh does not compare the nonce
 *   NO_REFRESH_LEASE     nor whether its lease is still there
 *   EXPIRE_KEEPS_REFRESH expire leaves the refresh under way alone
 *   REUSED_VERSIONS      data versions are counted in Redis, which may forget
 *   NOT_ATOMIC           acquire looks, and then sets without NX
 *   NO_GRACE             a lease whose epoch is over is taken over at once
 *   NO_RENAME            a renewal does not name the present epoch
 *   LATE_NAME            a call that comes late names the epoch it was sent in
 *   OLD_SNAPSHOT         the source's snapshot is older than the lease
 *   EARLY_INVALIDATE     a writer invalidates before its COMMIT
 *   TWO_PUTS             puts of two processes at the same time, without row
 *                        versions: what snowshed.h says of shed_put
 *   UNKNOWN_IS_OLDER     with UNKNOWN_ROWS: put replaces a value without a row
 *                        version
 *   UNKNOWN_IS_NEWER     with UNKNOWN_ROWS: put leaves one there
 *   NO_DEADLINE          with LATE_PUTS: a put that is held back on its way is
 *                        carried out after its call, too
 * ROW_VERSION is for a shed_put with a version: with it TWO_PUTS is sound for as long as
 * the entry is there (only puts are made, and a value does not vanish), and with
 * NO_ORDER, which takes the comparison out of put.lua, it must fail again. With
 * UNKNOWN_ROWS some of what is loaded has no row version. With LAGGING the source
 * reads a replica: any version up to that in the database. NO_LOAD_ORDER takes
 * the comparison of what a refresh has read out of flight_load.c.
 */
#ifndef FLIGHTS
#define FLIGHTS 3
#endif
#ifndef WRITERS
#define WRITERS 2
#endif
#ifndef EVENTS
#define EVENTS 3
#endif

#define NOTHING 0
#define LEASE 1
#define VALUE 2
#define MARKER 3

byte db = 1;
byte floor = 0; /* the newest row at the last invalidation */
byte soft = 0;  /* the same, at the last expiry */

byte K = NOTHING, K_version, K_holder, K_row;
bit K_has_row_version;
bit K_over;     /* of a lease: it may be taken over; of a value: it is stale */
byte R = NOTHING, R_version, R_holder;
bit R_over;

byte running;
byte begun; /* the last flight that has */
byte writing; /* writers between COMMIT and what they say */
bit is_putting;
byte late; /* the row of a put that is held back on its way; 0: there is none */
bit is_order_lost; /* of puts: one found a value of an unknown row version */

/* The flight whose lease lasts, 0 for none; flights are numbered from 1. */
byte lasts_K, lasts_R;

/* Whether the lease names the present epoch of its holder's session. One that does
 * not is ended by another flight's look, a grace later; renewed before, it lasts. All
 * flights may be of one process: an epoch is that of a flight's last call. */
bit K_named, R_named;
bit K_shortened, R_shortened;

/* Whether a flight has lost its session since it took or renewed its lease. The grace
 * is longer than it takes to renew it, so a lease that is renewed lasts. */
bit is_away[FLIGHTS + 1];

#ifdef NO_GRACE
#define MAY_TAKE(over, named) (over || !named)
#else
#define MAY_TAKE(over, named) (over)
#endif

#ifdef NO_VERSION
#define IS_MY_LEASE (K == LEASE)
#else
#define IS_MY_LEASE (K == LEASE && K_version == version[me])
#endif
#ifdef NO_NONCE
#define IS_MY_VALUE (K == VALUE)
#else
#define IS_MY_VALUE (K == VALUE && K_version == nonce[me])
#endif
#ifdef NO_REFRESH_LEASE
#define IS_MY_REFRESH true
#else
#define IS_MY_REFRESH (R == LEASE && R_version == version[me])
#endif
#if defined(ROW_VERSION) && !defined(NO_ORDER)
#define IS_OLDER (K == VALUE && K_has_row_version && K_row > mine)
#else
#define IS_OLDER false
#endif
#if defined(ROW_VERSION) && !defined(UNKNOWN_IS_OLDER) && \
    !defined(UNKNOWN_IS_NEWER)
#define IS_UNKNOWN (K == VALUE && !K_has_row_version)
#else
#define IS_UNKNOWN false
#endif
/* A refresh whose ttl is 0 removes the value. The order of puts lasts only for
 * as long as the value is there. */
#ifdef ROW_VERSION
#define MAY_REMOVE false
#else
#define MAY_REMOVE true
#endif
#ifdef UNKNOWN_IS_NEWER
#define STAYS (IS_OLDER || (K == VALUE && !K_has_row_version))
#else
#define STAYS IS_OLDER
#endif

/* What a flight has learnt from acquire: its data version, 0 if it does not
 * lead, and in a refresh the nonce of the value. */
byte version[FLIGHTS + 1], nonce[FLIGHTS + 1];

/* In a refresh: the row version of that value, 0 if it has none. */
byte old_row[FLIGHTS + 1];
#if defined(ROW_VERSION) && !defined(NO_LOAD_ORDER)
#define IS_LOAD_OLDER (nonce[me] != 0 && row < old_row[me])
#else
#define IS_LOAD_OLDER false
#endif

#ifdef REUSED_VERSIONS
#define IS_KNOWN(x) (x == K_version || x == R_version)
#elif FLIGHTS > 2
#define IS_KNOWN(x) \
    (x == K_version || x == R_version || x == version[1] || x == nonce[1] || \
     x == version[2] || x == nonce[2] || x == version[3] || x == nonce[3])
#else
#define IS_KNOWN(x) \
    (x == K_version || x == R_version || x == version[1] || x == nonce[1] || \
     x == version[2] || x == nonce[2])
#endif

/* A version that nobody knows. Only whether two are equal matters, so small
 * numbers are used again, and the states stay few. */
byte unknown;

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

inline begin_lease(lasts)
{
    assert(lasts == 0 || lasts == me);
    lasts = me
}

/* The flight has the lease of a record, as a call that is not late says. */
inline hold(data_version, holder, over, named, shortened, lasts)
{
    version[me] = data_version;
    holder = me;
    over = 0;
    named = 1;
    shortened = 0;
    is_away[me] = 0;
    begin_lease(lasts)
}

inline clear_K()
{
    K = NOTHING;
    K_version = 0;
    K_holder = 0;
    K_row = 0;
    K_has_row_version = 0;
    K_over = 0;
    K_named = 0;
    K_shortened = 0;
    lasts_K = 0
}

inline clear_R()
{
    R = NOTHING;
    R_version = 0;
    R_holder = 0;
    R_over = 0;
    R_named = 0;
    R_shortened = 0;
    lasts_R = 0
}

inline store(stored)
{
    assert(stored >= floor);
    assert(stored >= soft);
    clear_K();
    K = VALUE;
    K_row = stored;
    K_has_row_version = 1;
    new_version(K_version)
}

/* What a load stores may be "no such row", or have no row version. */
inline store_loaded()
{
    store(row);
#ifdef UNKNOWN_ROWS
    if
    :: K_has_row_version = 0
    :: skip
    fi
#endif
}

inline acquire_new()
{
    begin_lease(lasts_K);
    clear_K();
    K = LEASE;
    new_version(K_version);
    hold(K_version, K_holder, K_over, K_named, K_shortened, lasts_K)
}

/* acquire.lua where K is not NOTHING */
inline acquire_other()
{
    if
    :: K == VALUE && !K_over -> /* HIT */
       assert(K_row >= floor && K_row >= soft)
    :: K == VALUE -> /* stale, or found due by the caller */
       assert(K_row >= floor);
       nonce[me] = K_version;
       old_row[me] = (K_has_row_version -> K_row : 0);
       if
       :: R == NOTHING || (R == MARKER && R_over) ->
          clear_R();
          R = LEASE;
          new_version(R_version);
          hold(R_version, R_holder, R_over, R_named, R_shortened, lasts_R)
       :: R == LEASE && R_holder == me ->
          hold(R_version, R_holder, R_over, R_named, R_shortened, lasts_R)
       :: R == LEASE && R_holder != me && MAY_TAKE(R_over, R_named) ->
          hold(R_version, R_holder, R_over, R_named, R_shortened, lasts_R)
       :: R != NOTHING && R_holder != me && !R_over -> /* WAIT, or FAILED */
          R_shortened = (R == LEASE && !R_named);
          nonce[me] = 0;
          old_row[me] = 0
       fi
    :: K == LEASE && K_holder == me -> /* the reply was lost */
       hold(K_version, K_holder, K_over, K_named, K_shortened, lasts_K)
    :: K == LEASE && K_holder != me && MAY_TAKE(K_over, K_named) ->
       hold(K_version, K_holder, K_over, K_named, K_shortened, lasts_K)
    :: K == MARKER -> acquire_new() /* it no longer answers this caller */
    :: K == MARKER -> skip          /* FAILED */
    :: K == LEASE && K_holder != me && !K_over -> /* WAIT */
       K_shortened = !K_named
    fi
}

#ifdef NOT_ATOMIC
inline acquire()
{
    version[me] = 0;
    nonce[me] = 0;
    old_row[me] = 0;
    if
    :: K == NOTHING -> atomic { acquire_new() }
    :: atomic { K != NOTHING -> acquire_other() }
    fi
}
#else
inline acquire()
{
    atomic {
        version[me] = 0;
        nonce[me] = 0;
        old_row[me] = 0;
        if
        :: K == NOTHING -> acquire_new()
        :: else -> acquire_other()
        fi
    }
}
#endif

/* publish.lua of a load */
inline publish_load()
{
    atomic {
        if
        :: IS_MY_LEASE -> store_loaded()
        :: IS_MY_LEASE -> clear_K() /* its ttl is 0 */
        :: else -> skip /* SUPERSEDED, or INVALIDATED */
        fi
    }
}

/* publish.lua of a refresh; it also ends its lease */
inline publish_refresh()
{
    atomic {
        if
        :: IS_MY_REFRESH && IS_MY_VALUE && row == K_row &&
           K_has_row_version -> /* unmodified */
           assert(row >= floor && row >= soft);
           K_over = 0
        :: IS_MY_REFRESH && IS_MY_VALUE -> store_loaded()
        :: IS_MY_REFRESH && IS_MY_VALUE && MAY_REMOVE -> clear_K()
        :: else -> skip
        fi;
        if
        :: R == LEASE && R_version == version[me] -> clear_R()
        :: else -> skip
        fi
    }
}

inline publish()
{
    if
    :: nonce[me] == 0 -> publish_load()
    :: else -> publish_refresh()
    fi
}

/* fail.lua: only the present holder leaves a marker. */
inline fail()
{
    d_step {
        if
        :: nonce[me] == 0 && K == LEASE && K_version == version[me] &&
           K_holder == me ->
           clear_K();
           K = MARKER
        :: nonce[me] != 0 && R == LEASE && R_version == version[me] &&
           R_holder == me ->
           clear_R();
           R = MARKER
        :: else -> skip
        fi
    }
}

/* The process loses Redis, or dies. In its next epoch it has another name. */
inline lose_session()
{
    d_step {
        is_away[me] = 1;
        if
        :: K_holder == me -> K_named = 0
        :: else -> skip
        fi;
        if
        :: R_holder == me -> R_named = 0
        :: else -> skip
        fi
    }
}

#ifdef NO_RENAME
#define RENEWED(named) named
#else
#define RENEWED(named) 1
#endif
#ifdef LATE_NAME
#define NAMED_LATE(named) 0
#else
#define NAMED_LATE(named) named
#endif

/* renew.lua; the flight goes on for as long as it likes if the lease is gone. A
 * late one, from before the session was lost, does not end a grace. */
inline renew(is_late)
{
    d_step {
        if
        :: K == LEASE && K_version == version[me] && K_holder == me ->
           K_over = 0;
           K_shortened = 0;
           K_named = (is_late -> NAMED_LATE(K_named) : RENEWED(K_named));
           is_away[me] = is_away[me] && is_late;
           begin_lease(lasts_K)
        :: R == LEASE && R_version == version[me] && R_holder == me ->
           R_over = 0;
           R_shortened = 0;
           R_named = (is_late -> NAMED_LATE(R_named) : RENEWED(R_named));
           is_away[me] = is_away[me] && is_late;
           begin_lease(lasts_R)
        :: else -> skip
        fi
    }
}

/* One flight, which may crash at every step: from then on it is an old
 * command's reply that nobody reads. */
proctype Flight(byte me)
{
    byte row;
    atomic {
        begun == me - 1 -> /* in this order: they are all the same */
        begun = me
#ifdef OLD_SNAPSHOT
        ; row = db
#endif
    };
    acquire();
    if
    :: version[me] != 0 -> acquire() /* its reply was lost */
    :: true -> skip
    fi;
    if
    :: version[me] != 0 ->
#ifdef LAGGING
       atomic {
           row = 1;
           do
           :: row < db -> row++
           :: break
           od
       };
#elif !defined(OLD_SNAPSHOT)
       row = db;
#endif
#ifdef RECONNECTS /* has many states */
       if
       :: lose_session(); /* the load goes on */
          if
          :: renew(false);
             if
             :: renew(true) /* one that was held back on its way */
             :: true -> skip
             fi
          :: true -> skip
          fi
       :: true -> skip
       fi;
#endif
       if
       :: IS_LOAD_OLDER -> fail()
       :: !IS_LOAD_OLDER ->
          publish();
          if
          :: publish() /* its reply was lost */
          :: true -> skip
          fi
       :: fail()
       :: lose_session() /* for good: the lease is left behind */
       fi
    :: else -> skip
    fi;
    d_step {
        version[me] = 0;
        nonce[me] = 0;
        old_row[me] = 0;
        row = 0;
        running--
    }
}

inline invalidate()
{
    d_step {
        clear_K();
        clear_R();
        floor = db
    }
}

inline plain_del()
{
    d_step {
        clear_K();
        floor = db
    }
}

inline expire()
{
    d_step {
#ifndef EXPIRE_KEEPS_REFRESH
        clear_R();
#endif
        if
        :: K == VALUE -> K_over = 1
        :: else -> clear_K()
        fi;
        soft = db
    }
}

#if defined(ROW_VERSION) && !defined(NO_ORDER)
#define IS_ORDERED true
#else
#define IS_ORDERED false
#endif

/* From now on nobody reads what is older than the row that was put. */
inline raise_floor()
{
    if
    :: floor < mine -> floor = mine
    :: else -> skip
    fi
}

/* put.lua */
inline put()
{
    d_step {
        if
        :: STAYS -> raise_floor() /* it returns 2 */
        :: IS_UNKNOWN -> /* 3: removed, and not replaced. The order of a put that
                            comes later is lost, as it is when a value vanishes */
           clear_R();
           clear_K();
           if
           :: writing == 1 -> raise_floor()
           :: else -> is_order_lost = 1
           fi
        :: else ->
           assert(K != VALUE || !IS_ORDERED || mine >= K_row);
           clear_R();
           store(mine);
           floor = mine
        fi
    }
}

/* put.lua when Redis is out of memory */
inline put_refused()
{
    d_step {
        clear_R();
        clear_K();
        floor = db
    }
}

#ifdef ROW_VERSION
#define MAY_VANISH (K != NOTHING && K != VALUE)
#define MAY_REFUSE false
#else
#define MAY_VANISH (K != NOTHING)
#define MAY_REFUSE true
#endif

#if defined(TWO_PUTS) && defined(ROW_VERSION)
#define MAY_PUT true
#define MAY_WRITE false
#elif defined(TWO_PUTS)
#define MAY_PUT true
#define MAY_WRITE true
#else
#define MAY_PUT (writing == 0)
#define MAY_WRITE (!is_putting)
#endif

/* A writer commits a row and says so. A put is sound while no other writer of
 * the row is between its COMMIT and what it says. */
proctype Writer(byte number)
{
    byte mine;
    bit is_lost;
#ifdef EARLY_INVALIDATE
    invalidate();
    db++;
#else
    if
    :: atomic { MAY_PUT && db == number ->
                writing++; is_putting = 1; db++; mine = db };
       if
       :: put()
       :: MAY_REFUSE -> put_refused()
#ifdef LATE_PUTS
       :: late = mine; is_lost = 1 /* it is held back on its way */
       :: put(); late = mine       /* it was sent twice */
#endif
       fi
    :: atomic { MAY_WRITE && db == number -> writing++; db++ };
       if
       :: invalidate()
#ifndef LATE_PUTS /* has many states */
       :: plain_del()
       :: expire()
#endif
       fi
    fi;
    d_step {
#ifndef NO_DEADLINE
        late = 0; /* what comes after the call is too late */
#endif
        mine = 0; writing--; is_putting = 0
    };
    if
    :: is_lost -> is_lost = 0; invalidate() /* an undelivered one */
    :: else -> skip
    fi;
#endif
    running--
}

/* Time and memory, a few times: leases end, what is there becomes stale, or
 * vanishes. And what was held back goes on. */
proctype Time()
{
    byte left = EVENTS, mine;
end:
    do
    :: atomic { left > 0 && (K == LEASE || K == VALUE) && !K_over ->
                K_over = 1; lasts_K = 0; left-- }
    :: atomic { left > 0 && (R == LEASE || R == MARKER) && !R_over ->
                R_over = 1; lasts_R = 0; left-- }
    /* a grace ends; is_away tells whether its holder may be taken over */
    :: atomic { K == LEASE && K_shortened && !K_over ->
                K_over = 1; lasts_K = (is_away[K_holder] -> 0 : lasts_K) }
    :: atomic { R == LEASE && R_shortened && !R_over ->
                R_over = 1; lasts_R = (is_away[R_holder] -> 0 : lasts_R) }
    :: atomic { left > 0 && MAY_VANISH -> clear_K(); left-- }
    :: atomic { left > 0 && R != NOTHING -> clear_R(); left-- }
    :: atomic { late != 0 -> mine = late; late = 0; put(); mine = 0 }
    od
}

init
{
    byte i = 1;
    atomic {
        running = FLIGHTS + WRITERS;
        if
        :: K = VALUE; K_row = db; K_version = 1;
#ifdef LAGGING
           K_has_row_version = 1
#endif
        :: true -> skip
        fi;
        do
        :: i <= FLIGHTS -> run Flight(i); i++
        :: else -> break
        od;
        i = 1;
        do
        :: i <= WRITERS -> run Writer(i); i++
        :: else -> break
        od;
        run Time()
    }
    running == 0;
    assert(is_order_lost || K != VALUE || K_over || K_row == db)
}
