/* The near cache of src/known/local.c: a GET goes over the connection whose reads
 * Redis tracks, and what it finds is kept, and near. Answers and pushes come by
 * two connections, in any order.
 *
 *   K     what Redis has; each change is another
 *   row   what the process has kept; near: it is given out without a GET
 *
 * Checked whenever nothing is on its way, and no loss unnoticed: a row that is
 * near is what Redis has.
 *
 * Each of these must make the model fail:
 *   NO_MARK    an answer counts although a push came since the GET was sent
 *   LATE_MARK  the mark is taken when Redis has answered
 *   NO_RESET   a row that takes the place of a near one is near, too
 *   NO_END     a lost connection does not end that a row is near
 *   NO_BEGIN   announcements that begin do not rule out GETs under way
 *   UNTRACKED  an answer counts though nothing is announced
 */
#ifndef CHANGES
#define CHANGES 3
#endif
#ifndef GETS
#define GETS 3
#endif
#ifndef LOSSES
#define LOSSES 2
#endif

byte K = 1;
byte row = 0;
bool near = false;
byte changes = 0;      /* as the process has heard of them */
bool is_on = true;     /* the process believes that changes are announced */
bool is_up = true;     /* they are */
bool is_lost = false;  /* the process has yet to notice that they are not */
bool tracked = false;  /* Redis will announce the next change */
chan pushes = [CHANGES] of { bit };
chan asked = [1] of { bit };
chan answers = [1] of { byte };

active proctype Writer()
{
    byte n = 0;

    do
    :: n < CHANGES ->
        atomic {
            n++;
            K++;
            if
            :: tracked && is_up -> pushes!1
            :: else
            fi;
            tracked = false
        }
    :: n >= CHANGES -> break
    od
}

/* What a flight has loaded, or found, is kept, and not near. It may be late. */
active proctype Flight()
{
    byte n = 0, found;

    do
    :: n < GETS ->
        n++;
        found = K;
        atomic {
            if
#ifdef NO_RESET
            :: row != found -> row = found
#else
            :: row != found -> row = found; near = false
#endif
            :: else
            fi
        }
    :: n >= GETS -> break
    od
}

active proctype Redis()
{
end:
    do
    :: atomic { asked?_ -> tracked = is_up; answers!K }
    :: atomic { !is_up && !is_lost -> is_up = true }
    od
}

active proctype Loop()
{
    byte n = 0, mark, found;
    bool is_asking = false;

end:
    do
    :: atomic {
        !is_asking && n < GETS ->
        n++;
        is_asking = true;
        mark = changes;
        asked!1
        }
    :: atomic {
        answers?found ->
        is_asking = false;
#ifdef LATE_MARK
        mark = changes;
#endif
        if
        :: row != found -> row = found; near = false
        :: else
        fi;
        if
#ifdef NO_MARK
        :: is_on -> near = true
#elif defined(UNTRACKED)
        :: mark == changes -> near = true
#else
        :: is_on && mark == changes -> near = true
#endif
        :: else
        fi
        }
    :: atomic {
        pushes?_ ->
        changes++;
        near = false
        }
    :: atomic {
        is_lost ->
        is_lost = false;
        is_on = false;
        changes++;
#ifndef NO_END
        near = false
#endif
        }
    :: atomic {
        !is_on && is_up && !is_lost ->
#ifndef NO_BEGIN
        changes++;
        near = false;
#endif
        is_on = true
        }
    od
}

active proctype Network()
{
    byte n = 0;

    do
    :: atomic { n < LOSSES && is_up && is_on ->
        n++;
        is_up = false;
        is_lost = true;
        tracked = false;
        do
        :: pushes?_
        :: empty(pushes) -> break
        od
        }
    :: n >= LOSSES || !is_up || !is_on -> break
    od
}

active proctype Check()
{
end:
    do
    :: atomic {
        empty(pushes) && empty(asked) && empty(answers) && !is_lost ->
        assert(!near || row == K)
        }
    od
}
