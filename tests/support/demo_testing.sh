# shellcheck shell=bash
#
# What the tests of the demo programs share: expectations, SQL, and looking at
# processes. Source it with set -eum, SHED_TEST_REDIS and SHED_TEST_MYSQL set;
# $root is the tree.
#
#   scratch          a directory that is removed when the script ends
#   background       the id of a process that is killed then, if set
#   fail, expect     count a failure; compare numbers
#   with_database    a Redis URI, but another database of that server
#   sql              run statements in the database of SHED_TEST_MYSQL
#   refuses          a program exits with 2 and names what it refuses
#   await            wait for a condition, with a deadline
#   ends_with        a signal to a program also ends its children
#   run_demo         runs ${command[@]}; its status is in $status, its JSON in $scratch/json
#   figure_of        a figure of that
#   end_tests        exit with the status of the test

failures=0
wait_s=$((30 * ${SHED_TEST_SCALE:-1}))
scratch=$(mktemp -d)
background=""

clean_up()
{
    [ -z "$background" ] || kill -KILL "$background" 2>/dev/null || true
    rm -rf "$scratch"
}
trap clean_up EXIT

fail()
{
    echo "FAILED: $1"
    failures=$((failures + 1))
}

# expect WHAT LEFT OPERATOR RIGHT : a comparison of numbers.
expect()
{
    [[ " < <= == != >= > " == *" $3 "* ]] || fail "$1: no operator: $3"
    if awk -v a="$2" -v b="$4" "BEGIN { exit !(a != \"\" && a + 0 $3 b + 0) }"
    then
        echo "ok: $1: $2 $3 $4"
    else
        fail "$1: ${2:-(nothing)} $3 $4"
    fi
}

end_tests()
{
    [ "$failures" -eq 0 ] || echo "$failures failures"
    exit $((failures > 0))
}

# ---------------------------------------------------------------- database

# shellcheck source=servers.sh
. "${root:?}/tests/support/servers.sh"

# with_database URI NUMBER : the same Redis, but that database of it.
with_database()
{
    local rest=${1#redis://}
    case $1 in
    unix:*) echo "${1%%\?*}?db=$2" ;;
    redis://*) echo "redis://${rest%%/*}/$2" ;;
    esac
}

# sql [FILE...] : run statements of files, or of the standard input; what they
# select comes without headings.
sql()
{
    run_sql "${SHED_TEST_MYSQL:?is not set}" "$@" | tail -n +2
}

# ------------------------------------------------------------------ results

# run_demo WHAT OPTION... : the table is in $scratch/table. Unless $may_fail is set, it
# must succeed.
# shellcheck disable=SC2154
run_demo()
{
    local what=$1
    shift
    status=0
    rm -f "$scratch/json"
    "${command[@]}" --json "$scratch/json" "$@" >"$scratch/table" 2>"$scratch/progress" ||
        status=$?
    [ "$status" -eq 0 ] || [ -n "${may_fail:-}" ] || {
        fail "$what: it ends with an error"
        cat "$scratch/table" "$scratch/progress"
    }
    ! grep -E '.{81}' "$scratch/table" || fail "$what: more than 80 columns"
}

# figure_of KEY VALUE NAME : a figure of the object in which the key has this value;
# nothing if there is none.
figure_of()
{
    awk -v key="\"$1\":" -v value="$2," -v name="\"$3\":" '
        $1 == key { here = $2 == value }
        here && $1 == name { sub(",$", "", $2); print $2 }
    ' "$scratch/json"
}

# ----------------------------------------------------------------- options

# refuses WORD COMMAND... : exits with 2; the error contains the word.
refuses()
{
    local word=$1 status=0
    shift
    "$@" >"$scratch/table" 2>"$scratch/complaint" || status=$?
    expect "status of $*" "$status" == 2
    grep -qF -e "$word" "$scratch/complaint" ||
        fail "$*: the error does not name $word"
    [ ! -s "$scratch/table" ] || fail "$*: prints a table"
}

# --------------------------------------------------------------- processes

children_of()
{
    cat "/proc/$1/task/$1/children" 2>/dev/null || true
}

# It has ended, or is a zombie.
has_ended()
{
    ! grep -q '^State:[[:space:]]*[^Z]' "/proc/$1/status" 2>/dev/null
}

# await COMMAND... : waits until it succeeds; fails after wait_s.
await()
{
    local deadline=$((SECONDS + wait_s))
    until "$@"; do
        [ "$SECONDS" -lt "$deadline" ] || return 1
        sleep 0.02
    done
}

# has_children PID COUNT : at least this many.
has_children()
{
    [ "$(children_of "$1" | wc -w)" -ge "$2" ]
}

# ends_with SIGNAL STATUS CHILDREN COMMAND... : once the program has this many
# children, a signal to it alone ends it with the status, and the children too.
ends_with()
{
    local name=$1 status=$2 count=$3 got=0 children child
    shift 3
    # Not through a function: $! must be the program itself.
    "$@" >/dev/null 2>&1 &
    background=$!
    await has_children "$background" "$count" || fail "$name: no children"
    children=$(children_of "$background")
    kill "-$name" "$background"
    await has_ended "$background" || fail "$name: it does not end"
    for child in $children; do
        await has_ended "$child" || fail "$name: child $child is left"
    done
    wait "$background" 2>/dev/null || got=$?
    background=""
    expect "$name: status" "$got" == "$status"
}
