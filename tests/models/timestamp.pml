/* The lock of src/lock/timestamp.c: SETNX of the time at which it ends, and
 * GETSET where that time is over. Each command is a step of its own.
 *
 *   lock  the time at the key; 0: there is none
 *   now   the time by the clients' clocks
 *
 * Checked whenever a client gets the lock: nobody else is inside. That holds as
 * long as the clocks are equal, a holder leaves before its time, and its DEL
 * arrives before that, too; a holder may crash. A loser's GETSET moves the
 * winner's time, and that does no harm here. Not in the model: renewals, which
 * compare the time at the key in a script.
 *
 * Each of these must make the model fail:
 *   NO_SECOND_LOOK  what GETSET returns is not compared again
 *   NO_OWN_TIME     a release does not look whether its own time is over
 *   LATE_RELEASE    DEL arrives later than that look
 *   SKEW            one client's clock is ahead
 */
#ifndef CLIENTS
#define CLIENTS 3
#endif
#define TRIES 2
#define TERM 2
#define END 8

byte now = 1;
byte lock = 0;
byte inside = 0;
byte until = 0; /* when the one who is inside leaves at the latest */

#ifdef SKEW
#define CLOCK (now + (id == 1 -> TERM + 1 : 0))
#else
#define CLOCK now
#endif
#ifdef NO_SECOND_LOOK
#define IS_OVER true
#else
#define IS_OVER (old == 0 || old < CLOCK)
#endif
#ifdef NO_OWN_TIME
#define IS_MINE true
#else
#define IS_MINE (CLOCK < mine)
#endif

inline enter()
{
    inside++;
    assert(inside == 1);
    until = mine
}

inline release()
{
#ifdef LATE_RELEASE
    if
    :: IS_MINE -> lock = 0
    :: else -> skip
    fi
#else
    atomic {
        if
        :: IS_MINE -> lock = 0
        :: else -> skip
        fi
    }
#endif
}

proctype Client(byte id)
{
    byte mine, old, tries;

    do
    :: tries < TRIES ->
       tries++;
       atomic { /* SETNX */
           mine = CLOCK + TERM;
           if
           :: lock == 0 -> lock = mine; enter(); goto holding
           :: else -> skip
           fi
       };
       old = lock; /* GET */
       if
       :: old != 0 && old < CLOCK ->
          atomic { /* GETSET */
              mine = CLOCK + TERM;
              old = lock;
              lock = mine;
              if
              :: IS_OVER -> enter(); goto holding
              :: else -> skip
              fi
          }
       :: else -> skip
       fi
    :: tries == TRIES -> goto done
    od;
holding:
    atomic { inside--; until = 0 };
    if
    :: release()
    :: true -> skip /* a crash: the lock stays until its time is over */
    fi;
done:
    atomic { mine = 0; old = 0 }
}

proctype Time()
{
end:
    do
    :: atomic { now < END && (inside == 0 || now + 1 < until) -> now++ }
    od
}

init
{
    byte i = 0;
    atomic {
        do
        :: i < CLIENTS -> run Client(i); i++
        :: else -> break
        od;
        run Time()
    }
}
