/* One key on a primary and its replica, which replaces it before it has received
 * everything: the memory of src/known/delivery.c.
 *
 *   K_row   on each server, the version of the row that is stored; 0: none
 *   lease   on each server, whose lease is there; 0: nobody's
 *   behind  the states of the primary that the replica has not received yet
 *   primary which server the others agree upon
 *   db      the version of the row in the database; each writer commits one
 *
 * The writers are threads of a process that lives: it invalidates after each
 * COMMIT, remembers what was carried out, and repeats it when it knows of the other
 * primary. Until then it goes on using the former one, which still answers. The
 * loaders are of other processes, which change over whenever they like.
 *
 * Checked at the end, when the process knows of the primary and has repeated what it
 * remembers: what is stored there is the row in the database.
 *
 * Each of these must make the model fail:
 *   NO_REPEAT   what is remembered is not repeated
 *   NO_COUNT    a call does not look whether the server has changed meanwhile
 */
#ifndef WRITERS
#define WRITERS 2
#endif
#ifndef LOADERS
#define LOADERS 2
#endif
#define STATES 8

byte db = 1;
byte primary = 0;
byte done = 0;

byte K_row_of[2];
byte lease[2];
chan behind = [STATES] of {byte, byte};

byte used = 0;      /* the server that the process uses */
byte changes = 0;   /* how often it was another one */
byte remembered = 0;
bool knows = false;

/* What the primary has changed goes to its replica, some day. */
inline replicate(s)
{
    if
    :: s == 0 && primary == 0 -> behind!K_row_of[0], lease[0]
    :: else -> skip
    fi
}

inline unlink(s)
{
    K_row_of[s] = 0;
    lease[s] = 0;
    replicate(s)
}

active proctype Replica()
{
    byte row, who;
end:
    do
    :: atomic { primary == 0 && nempty(behind) -> behind?row, who;
                K_row_of[1] = row; lease[1] = who }
    :: atomic { primary == 0 -> primary = 1 } -> break
    od
}

proctype Writer()
{
    byte before, at;

    atomic { db++; before = changes; at = used }
    atomic { unlink(at) } /* the call is carried out */
    atomic {              /* and is answered */
        if
#ifndef NO_COUNT
        :: before != changes -> unlink(used) /* by the former server */
#endif
        :: else -> remembered++
        fi;
        before = 0;
        at = 0;
        done++
    }
}

/* The process hears of the other primary. */
active proctype Session()
{
    byte count;

    atomic { primary == 1 -> used = 1; changes++; count = remembered }
    if
#ifndef NO_REPEAT
    :: count > 0 -> atomic { unlink(1) }
#endif
    :: else -> skip
    fi;
    atomic { knows = true; done++ }
}

proctype Loader(byte me)
{
    byte at = 0, row;

    if
    :: at = 0
    :: atomic { primary == 1 -> at = 1 }
    fi;
    atomic {
        if
        :: K_row_of[at] == 0 && lease[at] == 0 -> lease[at] = me; replicate(at)
        :: else -> done++; goto over
        fi
    }
    row = db;
    if
    :: skip
    :: atomic { primary == 1 -> at = 1 } /* it publishes there */
    fi;
    atomic {
        if
        :: lease[at] == me -> K_row_of[at] = row; lease[at] = 0; replicate(at)
        :: else -> skip
        fi;
        done++
    }
over:
    skip
}

init
{
    byte i = 0;
    byte K_row;

    atomic {
        K_row_of[0] = 1;
        K_row_of[1] = 1;
        do
        :: i < WRITERS -> run Writer(); i++
        :: i == WRITERS -> break
        od;
        i = 1;
        do
        :: i <= LOADERS -> run Loader(i); i++
        :: else -> break
        od
    }
    atomic {
        knows && done == WRITERS + LOADERS + 1 -> K_row = K_row_of[1];
        assert(K_row == 0 || K_row == db)
    }
}
