# shellcheck shell=bash
#
# What the scripts of tests/package share. Source it with set -eu.
#
#   $here $tree       the directory of the script, and the tree
#   $work             a directory that is removed when the script ends; the output of
#                     what may fail goes to $work/log
#   fail TEXT         shows the end of that, and ends the script
#   need_servers      SHED_TEST_REDIS and SHED_TEST_MYSQL are set
#   copy_tree DIR     without what was built
#   fake NAME LINE... a program of this name, by these lines of sh, in $work/bin

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck disable=SC2034
tree=$(cd "$here/../.." && pwd)
self=$(basename "$0")
work=$(mktemp -d "${TMPDIR:-/tmp}/snowshed-$self.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' HUP INT TERM

fail()
{
    [ ! -s "$work/log" ] || tail -n 20 "$work/log" >&2
    echo "$self: $*" >&2
    exit 1
}

need_servers()
{
    : "${SHED_TEST_REDIS:?names no Redis: start this with tests/run}"
    : "${SHED_TEST_MYSQL:?names no MySQL: start this with tests/run}"
}

copy_tree()
{
    mkdir -p "$1"
    tar -C "$tree" --exclude=./build --exclude=./.git -c . | tar -C "$1" -x
}

fake()
{
    mkdir -p "$work/bin"
    printf '%s\n' '#!/bin/sh' "${@:2}" >"$work/bin/$1"
    chmod +x "$work/bin/$1"
}
