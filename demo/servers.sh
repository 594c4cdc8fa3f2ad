# shellcheck shell=bash
#
# Private servers for the tests and the demo: a Redis and a MariaDB in one
# temporary directory, on unix sockets alone, gone when the script ends; and
# the packages that they and the build need. Source it; it works with set -eu.
#
#   ensure_packages GROUP...   build, test, servers, lint: see packages_of
#   guard_servers              traps, so that nothing is left behind
#   make_servers_dir           a directory that goes with them: $servers_dir
#   start_servers              makes it and starts both there
#   start_redis DIR            exports REDIS_URI
#   start_mariadb DIR          exports MYSQL_URI; the database is empty
#   run_guarded COMMAND...     runs it so that Ctrl-C ends it, all of it
#   stop_servers               ends all that was started here
#
# Its invariant: only processes that were started here are ended, by their id.

# A slow machine (a sanitizer, an emulator) scales what is waited for.
servers_start_s=$((60 * ${SHED_TEST_SCALE:-1}))
servers_stop_s=15

servers_dir=""
servers_pids=()
servers_guarded_pid=""

# ---------------------------------------------------------------- packages

# The needs of a group: "what tells that it is there|Debian's package".
packages_of()
{
    case $1 in
    build)
        printf '%s\n' 'command:cc|gcc' 'header:stdio.h|libc6-dev' \
            'command:make|make' 'command:cmake|cmake' \
            'command:pkg-config|pkg-config' 'module:hiredis|libhiredis-dev' \
            'module:libuv|libuv1-dev' 'header:xxhash.h|libxxhash-dev' \
            'module:mysqlclient libmariadb|libmariadb-dev'
        ;;
    test)
        printf '%s\n' 'command:c++|g++' 'module:check|check' \
            'command:openssl|openssl' 'python:redis|python3-redis'
        ;;
    servers)
        # redis-tools, not redis-server, and the -core packages: these have the
        # programs without the services, which apt would start.
        printf '%s\n' \
            'command:redis-server redis-check-rdb|redis-tools' \
            'command:redis-cli|redis-tools' \
            'command:mariadbd mysqld|mariadb-server-core' \
            'command:mariadb-install-db mysql_install_db|mariadb-server-core' \
            'command:mariadb mysql|mariadb-client-core'
        ;;
    lint)
        printf '%s\n' 'command:clang|clang' 'command:clang-format|clang-format' \
            'command:clang-tidy|clang-tidy' 'command:shellcheck|shellcheck'
        ;;
    *)
        echo "servers.sh: no group of packages is called '$1'" >&2
        return 1
        ;;
    esac
}

# has KIND:NAME... : whether one of the names is there.
has()
{
    local kind=${1%%:*} name
    # Split into names.
    # shellcheck disable=SC2086
    set -- ${1#*:}
    for name; do
        case $kind in
        command) find_program "$name" >/dev/null && return 0 ;;
        module) pkg-config --exists "$name" 2>/dev/null && return 0 ;;
        # the first python3 of PATH need not be the system's
        python) { python3 -c "import $name" ||
            /usr/bin/python3 -c "import $name"; } >/dev/null 2>&1 && return 0 ;;
        header) echo "#include <$name>" | cc -E -x c - >/dev/null 2>&1 &&
            return 0 ;;
        esac
    done
    return 1
}

# Servers stand in sbin, which is not in everybody's PATH.
find_program()
{
    PATH=$PATH:/usr/local/sbin:/usr/sbin command -v "$1"
}

missing_packages()
{
    local group need
    for group; do
        packages_of "$group" | while IFS= read -r need; do
            has "${need%|*}" || echo "${need#*|}"
        done
    done | sort -u
}

is_debian()
{
    command -v apt-get >/dev/null && [ -r /etc/os-release ] &&
        grep -qE '^ID(_LIKE)?=.*(debian|ubuntu)' /etc/os-release
}

# as_root COMMAND... : fails when we may not.
as_root()
{
    if [ "$(id -u)" -eq 0 ]; then
        env "$@"
    else
        sudo -n env "$@"
    fi
}

apt_get()
{
    # RUNLEVEL=1: a package that brings a service does not start it.
    as_root DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
        apt-get -q -o DPkg::Lock::Timeout=120 "$@"
}

# Install what is missing of these groups, or name it and exit with 2.
ensure_packages()
{
    local missing
    missing=$(missing_packages "$@")
    [ -n "$missing" ] || return 0
    missing=${missing//$'\n'/ }
    if ! is_debian; then
        echo "Missing, by their Debian names: $missing" >&2
        exit 2
    fi
    if ! as_root true 2>/dev/null; then
        echo "Missing packages. Install them and start again:" >&2
        echo "    apt-get install --no-install-recommends $missing" >&2
        exit 2
    fi
    install_packages "$missing"
    missing=$(missing_packages "$@")
    if [ -n "$missing" ]; then
        echo "Still missing after the installation:" "${missing//$'\n'/ }" >&2
        exit 2
    fi
}

install_packages()
{
    local packages
    read -ra packages <<<"$1"
    echo "Installing with apt-get: $1"
    if apt-cache show "${packages[@]}" >/dev/null 2>&1 &&
        apt_get install -y --no-install-recommends "${packages[@]}"; then
        return 0
    fi
    # No package lists, or such as have grown old.
    apt_get update &&
        apt_get install -y --no-install-recommends "${packages[@]}" && return 0
    echo "apt-get could not install: $1" >&2
    exit 2
}

# ------------------------------------------------------------------- start

# Make sure that nothing is left behind, however the script ends.
guard_servers()
{
    trap stop_servers EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
}

make_servers_dir()
{
    local base=${TMPDIR:-/tmp}
    # The path of a unix socket ends at about 100 bytes.
    [ "${#base}" -le 60 ] || base=/tmp
    servers_dir=$(mktemp -d "$base/snowshed.XXXXXX")
}

start_servers()
{
    make_servers_dir || return 1
    start_redis "$servers_dir/redis" && start_mariadb "$servers_dir/mariadb"
}

# apart COMMAND... : become the command in a session of its own, which keeps the
# terminal's Ctrl-C from it, so that servers end after their clients; and let it
# end with us even if we are killed. (Both are util-linux.)
apart()
{
    exec setpriv --pdeathsig TERM setsid "$@"
}

# start_process LOG COMMAND... : in the background, its id in $started_pid.
start_process()
{
    local log=$1
    shift
    apart "$@" >"$log" 2>&1 </dev/null &
    started_pid=$!
    servers_pids+=("$started_pid")
}

# await_server NAME PID LOG COMMAND... : until the command succeeds.
await_server()
{
    local name=$1 pid=$2 log=$3 deadline=$((SECONDS + servers_start_s))
    shift 3
    until "$@" >/dev/null 2>&1; do
        if ! kill -0 "$pid" 2>/dev/null; then
            echo "$name ended at its start:" >&2
            tail -n 20 "$log" >&2
            return 1
        fi
        if [ "$SECONDS" -ge "$deadline" ]; then
            echo "$name does not answer after $servers_start_s s:" >&2
            tail -n 20 "$log" >&2
            return 1
        fi
        sleep 0.05
    done
}

# redis-server is a name of redis-check-rdb: it acts by the name it is called.
link_redis()
{
    local program
    find_program redis-server >/dev/null && return 0
    program=$(find_program redis-check-rdb) || return 1
    mkdir -p "$1/bin" && ln -sf "$program" "$1/bin/redis-server" || return 1
    export PATH=$1/bin:$PATH
}

answers_pong()
{
    [ "$(redis-cli -s "$1" ping)" = PONG ]
}

start_redis()
{
    local dir=$1 socket=$1/redis.sock options=(--enable-debug-command yes)
    mkdir -p "$dir" || return 1
    if ! link_redis "$dir"; then
        echo "redis-server is not installed" >&2
        return 1
    fi
    # Before 7.0, DEBUG is always allowed and the option is an error.
    ! redis-server --version | grep -qE ' v=[0-6]\.' || options=()
    start_process "$dir/log" "$(find_program redis-server)" --port 0 \
        --unixsocket "$socket" --unixsocketperm 700 --save '' \
        --appendonly no --dir "$dir" "${options[@]}"
    await_server redis-server "$started_pid" "$dir/log" \
        answers_pong "$socket" || return 1
    export REDIS_URI="unix:$socket?db=0"
}

create_database()
{
    local client
    client=$(find_program mariadb || find_program mysql) || return 1
    "$client" --no-defaults --user=root --socket="$1" \
        --execute='CREATE DATABASE IF NOT EXISTS snowshed
            CHARACTER SET utf8mb4'
}

start_mariadb()
{
    local dir=$1 socket=$1/mariadb.sock install server user=()
    install=$(find_program mariadb-install-db ||
        find_program mysql_install_db || true)
    server=$(find_program mariadbd || find_program mysqld || true)
    if [ -z "$install" ] || [ -z "$server" ]; then
        echo "mariadb-install-db or mariadbd is not installed" >&2
        return 1
    fi
    [ "$(id -u)" -ne 0 ] || user=(--user=root)
    mkdir -p "$dir/tmp" || return 1
    # --force: without it the machine's own name must resolve.
    if ! "$install" --no-defaults --datadir="$dir/data" --tmpdir="$dir/tmp" \
        --auth-root-authentication-method=normal --skip-test-db \
        --force "${user[@]}" >"$dir/log" 2>&1; then
        echo "mariadb-install-db failed:" >&2
        tail -n 20 "$dir/log" >&2
        return 1
    fi
    # Nothing here outlives the directory: no durability, small buffers.
    start_process "$dir/log" "$server" --no-defaults "${user[@]}" \
        --datadir="$dir/data" --tmpdir="$dir/tmp" --socket="$socket" \
        --pid-file="$dir/pid" --skip-networking --skip-name-resolve \
        --max-connections=500 --character-set-server=utf8mb4 \
        --max-allowed-packet=256M --performance-schema=OFF --skip-log-bin \
        --innodb-buffer-pool-size=128M --innodb-log-file-size=32M \
        --innodb-flush-log-at-trx-commit=2 --innodb-doublewrite=0 \
        --innodb-fast-shutdown=2 --key-buffer-size=1M \
        --aria-pagecache-buffer-size=8M
    await_server mariadbd "$started_pid" "$dir/log" \
        create_database "$socket" || return 1
    export MYSQL_URI="mysql://root@/snowshed?socket=$socket"
}

# -------------------------------------------------------------------- stop

# Run a command as a group of processes of its own, which a signal to this
# script ends. (A shell runs no trap while it waits for a foreground command.)
run_guarded()
{
    local status=0
    apart "$@" </dev/null &
    servers_guarded_pid=$!
    wait "$servers_guarded_pid" || status=$?
    servers_guarded_pid=""
    return "$status"
}

is_alive()
{
    kill -0 -- "$1" 2>/dev/null
}

# end_processes ID... : TERM, then KILL after a deadline. An id below 0 is a
# group.
end_processes()
{
    local id deadline=$((SECONDS + servers_stop_s))
    for id; do
        kill -TERM -- "$id" 2>/dev/null || true
    done
    for id; do
        while is_alive "$id" && [ "$SECONDS" -lt "$deadline" ]; do
            sleep 0.05
        done
        ! is_alive "$id" || kill -KILL -- "$id" 2>/dev/null || true
    done
}

# End what was started here, remove the directory; the script's status stays.
stop_servers()
{
    local status=$?
    trap '' HUP INT TERM
    if [ -n "$servers_guarded_pid" ]; then
        end_processes "-$servers_guarded_pid"
        servers_guarded_pid=""
    fi
    if [ "${#servers_pids[@]}" -gt 0 ]; then
        end_processes "${servers_pids[@]}"
        wait "${servers_pids[@]}" 2>/dev/null || true
        servers_pids=()
    fi
    [ -z "$servers_dir" ] || rm -rf "$servers_dir"
    servers_dir=""
    return "$status"
}

# ------------------------------------------------------------------- SQL

# run_sql URI [FILE...] : statements of files, or of the standard input, in the
# database that a mysql:// URI names.
run_sql()
{
    local rest=${1#mysql://} who="" password="" host socket="" name client
    client=$(command -v mariadb || command -v mysql)
    case $rest in
    *@*)
        who=${rest%%@*}
        rest=${rest#*@}
        ;;
    esac
    case $who in *:*)
        password=${who#*:}
        who=${who%%:*}
        ;;
    esac
    case $rest in *\?socket=*) socket=${rest#*\?socket=} ;; esac
    rest=${rest%%\?*}
    host=${rest%%/*}
    name=${rest#*/}
    local arguments=(--no-defaults --database "$name")
    [ -z "$who" ] || arguments+=(--user "$who")
    [ -z "$socket" ] || arguments+=(--socket "$socket")
    if [ -n "$host" ]; then
        arguments+=(--host "${host%%:*}")
        case $host in *:*) arguments+=(--port "${host#*:}") ;; esac
    fi
    shift
    # the password goes by the environment: a command line is no secret
    cat "$@" | MYSQL_PWD=$password "$client" "${arguments[@]}"
}
