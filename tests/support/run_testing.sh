# shellcheck shell=bash
#
# What the tests of tests/run and demo/run share: a script runs in a copy of the
# tree, and leaves nothing behind when it ends or is interrupted. Source it with
# set -eu; $root is the tree, and $self the name of the test.
#
#   $work              a directory that is removed when the test ends
#   copy_tree NAME...  of $root, to $work/tree
#   start COMMAND...   in the background, its output in $work/log
#   await COMMAND...   until it succeeds; fails if what was started ends
#   expect_end STATUS WORDS    of what was started
#   fail TEXT          ends the test

patience_s=$((120 * ${SHED_TEST_SCALE:-1}))
pid=""
work=$(mktemp -d "${TMPDIR:-/tmp}/snowshed-run.XXXXXX")
mkdir "$work/tmp" "$work/tree"

fail()
{
    echo "${self:?}: $*" >&2
    [ ! -s "$work/log" ] || tail -n 20 "$work/log" >&2
    exit 1
}

copy_tree()
{
    local name
    for name; do
        mkdir -p "$work/tree/$(dirname "$name")"
        cp -R "${root:?}/$name" "$work/tree/$name"
    done
}

# The processes that have the TMPDIR of what was started: nobody else has it.
# Redis overwrites its environment with its title, which names its socket.
left_behind()
{
    local process title
    for process in /proc/[0-9]*; do
        # It may belong to another user, or have just ended.
        title=""
        { IFS= read -rd '' title <"$process/cmdline"; } 2>/dev/null || true
        [[ $title == *"$work/tmp"* ]] ||
            grep -qsF "TMPDIR=$work/tmp" "$process/environ" 2>/dev/null ||
            continue
        basename "$process"
    done
}

# In a session of its own, as a terminal would start it: Ctrl-C is not ignored.
start()
{
    TMPDIR=$work/tmp setsid env --default-signal=INT "$@" \
        >"$work/log" 2>&1 </dev/null &
    pid=$!
}

await()
{
    local deadline=$((SECONDS + patience_s))
    until "$@"; do
        kill -0 "$pid" 2>/dev/null || fail "it ended before '$*'"
        [ "$SECONDS" -lt "$deadline" ] || fail "still not: $*"
        sleep 0.05
    done
}

expect_end()
{
    local status=0
    wait "$pid" || status=$?
    pid=""
    [ "$status" -eq "$1" ] || fail "it ends with $status, not $1"
    grep -q -- "$2" "$work/log" || fail "it does not print '$2'"
    [ -z "$(left_behind)" ] || fail "processes are left: $(left_behind)"
    [ -z "$(ls -A "$work/tmp")" ] || fail "files are left: $(ls "$work/tmp")"
}

clean_up()
{
    local id
    [ -z "$pid" ] || kill -TERM -- "-$pid" 2>/dev/null || true
    [ -z "$pid" ] || wait "$pid" 2>/dev/null || true
    for id in $(left_behind); do
        kill -KILL "$id" 2>/dev/null || true
    done
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' HUP INT TERM
