# shellcheck shell=bash
# What the tests of snowshed, the command-line tool, share: how it is asked, in
# text and in JSON, and a process that makes entries and locks. Source it, with
# the script's arguments:
#
#   SNOWSHED CLI_MAKER [GROUP]
#
# It needs SHED_TEST_REDIS and SHED_TEST_MYSQL.
# Some functions are called by trap and by await.
# shellcheck disable=SC2317,SC2119,SC2120
set -eu

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
tool=${1:?usage: $0 SNOWSHED CLI_MAKER [GROUP]}
maker=${2:?usage: $0 SNOWSHED CLI_MAKER [GROUP]}
only=${3:-}
# shellcheck source=demo_testing.sh
. "$root/tests/support/demo_testing.sh"

export SNOWSHED_REDIS=${SHED_TEST_REDIS:?is not set}
cache=cli$$
maker_pid=""
db=""
# the system's python3 starts faster than one that precedes it in PATH may
python=/usr/bin/python3
[ -x "$python" ] || python=python3
out=$scratch/out
err=$scratch/err

trap '[ -z "$maker_pid" ] || kill -KILL "$maker_pid" 2>/dev/null
    clean_up' EXIT

# ask STATUS ARGUMENT... : run the tool, which must end with this status;
# nothing that it prints may control a terminal.
ask()
{
    local want=$1 got=0
    shift
    asked=$*
    "$tool" "$@" >"$out" 2>"$err" </dev/null || got=$?
    [ "$got" -eq "$want" ] || {
        fail "$asked: status $got, not $want"
        cat "$out" "$err"
    }
    if [[ " $* " != *" --raw "* ]] &&
        LC_ALL=C grep -qP '[^\x0a\x20-\x7e]' "$out" "$err"; then
        fail "$asked: bytes that are no printable ASCII"
    fi
}

# says TEXT... : the last answer, or its error, contains each text, which may
# be broken into lines there.
says()
{
    local text
    for text; do
        grep -qF -e "$text" "$out" "$err" && continue
        cat "$out" "$err" | tr -s '\n ' ' ' | grep -qF -e "$text" && continue
        fail "$asked: does not say '$text'"
        cat "$out" "$err"
    done
}

# json STATUS EXPRESSION ARGUMENT... : the same question with --json; d is the
# answer, in Python, and would what a caller would get.
json()
{
    local want=$1 expression=$2
    shift 2
    ask "$want" --json "$@"
    "$python" - "$out" "$expression" <<'EOT' || fail "$asked: not $expression"
import json, sys
d = json.load(open(sys.argv[1]))
would = d.get("caller", {}).get("would")
if not eval("(" + sys.argv[2] + ")"):
    sys.exit(str(d))
EOT
}

# shows STATUS TEXT|TEXT... EXPRESSION ARGUMENT... : in text, and in JSON.
shows()
{
    local want=$1 expression=$3 texts
    IFS='|' read -r -a texts <<<"$2"
    shift 3
    ask "$want" "$@"
    says "${texts[@]}"
    json "$want" "$expression" "$@"
}

# removed COUNT EXISTED : what invalidate has said.
removed()
{
    says "invalidated $1 removed $2"
}

# ask_any ARGUMENT... : the exit status, 0 or 1, depends on the machine.
ask_any()
{
    asked=$*
    "$tool" "$@" >"$out" 2>"$err" || [ $? -eq 1 ] || fail "$asked: status"
}

# shows_entry STATUS TEXT|TEXT... EXPRESSION KEY : of a key of the cache.
shows_entry()
{
    shows "$1" "$2" "$3" get "$cache" "$4"
}

socket=$(sed -E 's/^unix:(\/\/[^/]*)?//; s/\?.*//' <<<"$SNOWSHED_REDIS")

# redis WORD... : in database $db, if it is set.
redis()
{
    redis-cli -s "$socket" ${db:+-n "$db"} "$@"
}

# start_maker [plain]
start_maker()
{
    coproc maker_io { exec "$maker" "$SNOWSHED_REDIS" "$cache" "$@"; }
    # shellcheck disable=SC2154
    maker_pid=$maker_io_PID
    maker_in=${maker_io[1]}
    maker_out=${maker_io[0]}
}

# begin_maker [plain] : another process.
begin_maker()
{
    [ -z "$maker_pid" ] || end_maker
    start_maker "$@"
}

# make WORD... : tell cli_maker what to do.
make()
{
    local answer
    printf '%s\n' "$*" >&"$maker_in"
    IFS= read -r answer <&"$maker_out"
    [ "$answer" = ok ] || fail "cli_maker $*: $answer"
}

# is_there KEY : a key of Redis.
is_there()
{
    [ "$(redis exists "$1")" = 1 ]
}

end_maker()
{
    kill -KILL "$maker_pid"
    wait "$maker_pid" 2>/dev/null || true
    maker_pid=""
}

# has_subscribers PROCESS COUNT
has_subscribers()
{
    [ "$(redis pubsub numsub "snowshed:process:$1" | tail -n 1)" = "$2" ]
}

# with_user USER PASSWORD : the URI, with these.
with_user()
{
    sed -E "s|^unix:(//)?|unix://$1:$2@|; s|^redis://([^@]*@)?|redis://$1:$2@|" \
        <<<"$SNOWSHED_REDIS"
}

# allow RIGHT... : $limited is the URI of a user with these rights alone; the
# scripts that source this file use it.
# shellcheck disable=SC2034
allow()
{
    redis acl setuser limited reset on '>hush' "$@" >/dev/null
    limited=$(with_user limited hush)
}

# is_newer KEY : the maker has heard that it was invalidated, and loaded it again.
is_newer()
{
    make get "$1"
    "$tool" --json get "$cache" "$1" | grep -q '"position": 1[0-9]'
}

# has_waiter KEY : one waits in the queue of a fair lock.
has_waiter()
{
    [ "$(redis zcard "$1")" = 1 ]
}

# ------------------------------------------------------------------- watch

# The flag B of a connection: it is told of changes by prefix.
watches()
{
    redis client list | grep -q ' flags=[A-Za-z]*B'
}

# start_watch ARGUMENT... : in the background, its lines in $scratch/lines; it
# is told of changes from here on.
start_watch()
{
    "$tool" watch "$@" >"$scratch/lines" 2>"$err" &
    background=$!
    await watches || fail 'watch does not begin'
}

# sees TEXT : in a line, sooner or later.
sees()
{
    await grep -qE -e "$1" "$scratch/lines" || {
        fail "watch: does not see $1"
        cat "$scratch/lines"
    }
}

# ended WHAT STATUS : what runs in the background ends with this status.
ended()
{
    local got=0
    wait "$background" || got=$?
    background=""
    asked=$1
    expect "$1: status" "$got" == "$2"
}

# run_groups GROUP... : the functions test_GROUP, or the one that is wanted, each
# with a process, a cache and an empty database of its own; of a cluster there is
# one of each for all.
run_groups()
{
    local group
    for group in ${only:-"$@"}; do
        echo "test_$group"
        if [ -z "${cluster_uri:-}" ]; then
            db=11
            SNOWSHED_REDIS="${SHED_TEST_REDIS%\?*}?db=$db"
            cache=${group//_/-}$$
            redis flushdb >/dev/null
            redis config set maxmemory-policy noeviction >/dev/null
        fi
        begin_maker
        "test_$group"
        # no secret is ever shown
        ! grep -q hush "$out" "$err" || fail "$group: a password is shown"
    done
    [ -z "$maker_pid" ] || end_maker
    redis acl deluser limited >/dev/null || true
    end_tests
}
