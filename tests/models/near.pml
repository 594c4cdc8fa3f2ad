/* The near cache of src/known/near.c: what a GET over any link has found is kept,
 * and becomes near when a question over the tracked connection has found the
 * same. Answers and pushes come by two connections, in any order.
 *
 *   K     what Redis has; each change is another
 *   row   what the process has kept; near: it is given out without a GET
 *
 * Checked whenever nothing is on its way, and no loss unnoticed: a row that is
 * near is what Redis has.
 *
 * Each of these must make the model fail:
 *   NO_MARK    an answer counts although a push came since the question was sent
 *   LATE_MARK  the mark is taken when Redis has answered
 *   NO_SAME    the answer is not compared with the row
 *   NO_END     a lost connection does not end that a row is near
 *   UNTRACKED  questions are asked though nothing is announced
 */
#ifndef CHANGES
#define CHANGES 3
#endif
#ifndef QUESTIONS
#define QUESTIONS 3
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

/* Its replies may be late. */
active proctype Getter()
{
    byte n = 0, found;

    do
    :: n < QUESTIONS ->
        n++;
        found = K;
        atomic {
            if
            :: row != found -> row = found; near = false
            :: else
            fi
        }
    :: n >= QUESTIONS -> break
    od
}

active proctype Redis()
{
end:
    do
    :: atomic { asked?_ -> tracked = is_up; answers!K }
    od
}

active proctype Loop()
{
    byte n = 0, mark, found;
    bool is_asking = false;

end:
    do
    :: atomic {
#ifdef UNTRACKED
        !is_asking && n < QUESTIONS ->
#else
        !is_asking && n < QUESTIONS && is_on ->
#endif
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
#ifdef NO_MARK
        :: found == row -> near = true
#elif defined(NO_SAME)
        :: row != 0 && mark == changes -> near = true
#else
        :: found == row && mark == changes -> near = true
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
    :: atomic { !is_on -> is_up = true; is_on = true }
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
