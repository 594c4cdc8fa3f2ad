# shellcheck shell=bash
#
# Private servers for the tests and the demo: a Redis (or Valkey) and a MariaDB
# (or MySQL) in one temporary directory, reachable by unix sockets only and gone
# when the script ends; and the packages that they and the build need. Source
# it; it works with set -eu.
#
#   ensure_packages GROUP...   installs what is missing; see packages_of
#   guard_servers              sets traps, so that nothing is left behind
#   make_servers_dir           makes $servers_dir, which is removed at the end
#   start_servers              makes it and starts both servers there
#   start_redis DIR            exports REDIS_URI
#   start_database DIR         exports MYSQL_URI; the database is empty
#   run_guarded COMMAND...     runs it so that Ctrl-C ends all of its processes
#   stop_servers               ends everything that was started here
#
# Its invariants: only processes that were started here are ended, by their id;
# packages are added, never removed; the directory does not outlive the script,
# however that ends.

# Where everything is slow (a sanitizer, an emulator), servers get more time.
servers_start_s=$((60 * ${SHED_TEST_SCALE:-1}))
servers_stop_s=15

servers_dir=""
servers_pids=()
servers_guarded_pid=""
servers_guard_pid=""

# ---------------------------------------------------------------- packages

# What a group needs, a line each: "how to see that it is there|package".
packages_of()
{
    case $1 in
    build)
        printf '%s\n' 'command:cc|gcc' 'header:stdio.h|libc6-dev' \
            'command:make|make' 'command:cmake|cmake' \
            'command:pkg-config|pkg-config' 'module:hiredis|libhiredis-dev' \
            'module:libuv|libuv1-dev' 'module:openssl|libssl-dev' \
            'header:xxhash.h|libxxhash-dev' \
            'module:jansson|libjansson-dev' 'module:libmicrohttpd|libmicrohttpd-dev' \
            'module:mysqlclient libmariadb|libmariadb-dev'
        ;;
    test)
        printf '%s\n' 'command:c++|g++' 'module:check|check' \
            'command:openssl|openssl' 'python:redis|python3-redis' \
            'command:h2load|nghttp2-client' 'module:libevent|libevent-dev' \
            'module:libzstd|libzstd-dev' 'module:zlib|zlib1g-dev'
        ;;
    # redis-tools instead of redis-server, and the -core packages: they contain
    # the programs without the services, which apt would start.
    redis)
        printf '%s\n' 'server:redis|redis-tools' \
            'command:redis-cli valkey-cli|redis-tools'
        ;;
    database)
        printf '%s\n' 'server:mariadb mysql|mariadb-server-core'
        ;;
    client)
        printf '%s\n' 'command:mariadb mysql|mariadb-client-core'
        ;;
    browser)
        printf '%s\n' 'command:chromium|chromium' \
            'command:chromedriver|chromium-driver' \
            'python:selenium|python3-selenium'
        ;;
    load)
        printf '%s\n' 'command:wrk|wrk' 'python:http.server|python3' \
            'file:/usr/share/javascript/chart.js/chart.min.js|libjs-chart.js'
        ;;
    lint)
        printf '%s\n' 'command:clang|clang' 'command:clang-format|clang-format' \
            'command:clang-tidy|clang-tidy' 'command:shellcheck|shellcheck'
        ;;
    packages)
        printf '%s\n' 'command:lintian|lintian' 'command:abidiff|abigail-tools'
        ;;
    fuzz)
        printf '%s\n' 'command:clang|clang' 'fuzzer:clang|libclang-rt-dev'
        ;;
    models)
        printf '%s\n' 'command:spin|spin'
        ;;
    callgrind)
        printf '%s\n' 'command:valgrind|valgrind'
        ;;
    picture)
        printf '%s\n' 'python:matplotlib|python3-matplotlib'
        ;;
    # for .ci/run, and for nginx's own test and benchmark: the packages bring a
    # service, which could be started
    rules)
        printf '%s\n' 'command:promtool|prometheus'
        ;;
    nginx)
        printf '%s\n' 'command:nginx|nginx' \
            'file:/usr/share/nginx/src/conf_flags|nginx-dev'
        ;;
    *)
        echo "servers.sh: no group of packages is called '$1'" >&2
        return 1
        ;;
    esac
}

# has KIND:NAME... : whether one of the names is installed.
has()
{
    local kind=${1%%:*} name
    # The names are split at spaces.
    # shellcheck disable=SC2086
    set -- ${1#*:}
    for name; do
        case $kind in
        server) "find_$name" >/dev/null && return 0 ;;
        command) find_program "$name" >/dev/null && return 0 ;;
        module) pkg-config --exists "$name" 2>/dev/null && return 0 ;;
        # the first python3 in PATH need not be the system's
        python) { python3 -c "import $name" ||
            /usr/bin/python3 -c "import $name"; } >/dev/null 2>&1 && return 0 ;;
        file) [ -e "$name" ] && return 0 ;;
        # in a package that the compiler's only recommends
        fuzzer) echo 'int LLVMFuzzerTestOneInput(void) { return 0; }' |
            "$name" -fsanitize=fuzzer -x c - -o /dev/null >/dev/null 2>&1 &&
            return 0 ;;
        header) echo "#include <$name>" | cc -E -x c - >/dev/null 2>&1 &&
            return 0 ;;
        esac
    done
    return 1
}

# Servers are in sbin, which is not in everybody's PATH.
find_program()
{
    PATH=$PATH:/usr/local/sbin:/usr/sbin command -v "$1"
}

# The program that is a Redis server, or acts as one when it is called
# redis-server: packages without the service contain it under another name only.
find_redis()
{
    find_program redis-server || find_program valkey-server ||
        find_program redis-check-rdb || find_program valkey-check-rdb
}

find_mariadb()
{
    find_program mariadb-install-db >/dev/null ||
        find_program mysql_install_db >/dev/null || return 1
    find_program mariadbd || find_program mysqld
}

# Both servers are called mysqld; MySQL's makes its directory without a script.
find_mysql()
{
    ! find_mariadb >/dev/null && find_program mysqld
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

# as_root COMMAND... : fails where we have no such right.
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

# Install what these groups lack, or say why that is impossible and exit with 2.
ensure_packages()
{
    local packages
    mapfile -t packages < <(missing_packages "$@")
    [ "${#packages[@]}" -gt 0 ] || return 0
    if ! is_debian; then
        echo "Missing packages, by their Debian names: ${packages[*]}." >&2
        echo "Install what they are called here, so that their programs are in" \
            "PATH, and try again." >&2
        advise "${packages[@]}"
        exit 2
    fi
    if as_root true 2>/dev/null; then
        fetch_lists "${packages[@]}"
        install_packages "${packages[@]}"
    else
        name_packages "${packages[@]}"
    fi
    mapfile -t packages < <(missing_packages "$@")
    if [ "${#packages[@]}" -gt 0 ]; then
        echo "Still missing after the installation: ${packages[*]}." \
            "Look for their programs, which must be in PATH." >&2
        advise "${packages[@]}"
        exit 2
    fi
}

# A fresh machine has no package lists.
fetch_lists()
{
    local package
    for package; do
        # apt-cache shows an installed package without any list
        apt-cache --quiet=2 policy "$package" 2>/dev/null |
            grep -q '^ *Candidate: [^(]' && continue
        echo "Fetching the package lists with apt-get update."
        apt_get -qq update || exit 2
        return 0
    done
}

name_packages()
{
    echo "Packages are missing. Install them as root and try again:" >&2
    echo "    apt-get update" >&2
    echo "    apt-get install --no-remove --no-install-recommends $*" >&2
    advise "$@"
    exit 2
}

# advise PACKAGE... : what can be done without servers, or without a browser.
advise()
{
    local package
    for package; do
        case $package in
        redis-tools) echo "Or use a Redis that is already running:" \
            "--redis URI" ;;
        mariadb-server-core) echo "Or use a MariaDB or MySQL that is already" \
            "running: --mysql URI" ;;
        chromium) echo "Or leave out the tests in a browser: tests/run" \
            "--without browser" ;;
        esac
    done >&2
}

# apt-get says how much it downloads, and what it would have to remove.
install_packages()
{
    echo "Installing with apt-get: $*"
    apt_get install -y --no-remove --no-install-recommends "$@" && return 0
    echo "That failed; trying again with new package lists."
    apt_get -qq update &&
        apt_get install -y --no-remove --no-install-recommends "$@" && return 0
    echo "apt-get could not install: $*. Its messages above say why; solve that," \
        "or install them by hand, and try again." >&2
    advise "$@"
    exit 2
}

# ------------------------------------------------------------------- start

# Leave nothing behind, however the script ends.
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
    # The path of a unix socket is limited to about 100 bytes.
    [ "${#base}" -le 60 ] || base=/tmp
    servers_dir=$(mktemp -d "$base/snowshed.XXXXXX") || return 1
    guard_dir
    link_redis "$servers_dir/bin"
}

# Start a process that outlives this script if that is killed, and then removes
# the directory: with some patience, for servers that are ending there.
guard_dir()
{
    # shellcheck disable=SC2016
    setsid sh -c 'tail --pid="$1" -f /dev/null
        for _ in $(seq 300); do
            rm -rf "$2" && break
            sleep 0.1
        done' guard_dir "$$" "$servers_dir" >/dev/null 2>&1 </dev/null &
    servers_guard_pid=$!
}

start_servers()
{
    make_servers_dir || return 1
    start_redis "$servers_dir/redis" && start_database "$servers_dir/database"
}

# apart COMMAND... : become the command, in a session of its own, where the
# terminal's Ctrl-C does not reach it, so that servers end after their clients.
# It ends with this script even if that is killed. (Both are in util-linux.)
apart()
{
    exec setpriv --pdeathsig TERM setsid "$@"
}

# start_process LOG COMMAND... : runs it in the background and puts its process
# id into $started_pid.
start_process()
{
    local log=$1
    shift
    apart "$@" >"$log" 2>&1 </dev/null &
    started_pid=$!
    servers_pids+=("$started_pid")
}

# await_server NAME PID LOG COMMAND... : waits until the command succeeds.
await_server()
{
    local name=$1 pid=$2 log=$3 deadline=$((SECONDS + servers_start_s))
    shift 3
    until "$@" >/dev/null 2>&1; do
        if ! kill -0 "$pid" 2>/dev/null; then
            echo "$name ended while starting:" >&2
            tail -n 20 "$log" >&2
            return 1
        fi
        if [ "$SECONDS" -ge "$deadline" ]; then
            echo "$name has not answered within $servers_start_s s:" >&2
            tail -n 20 "$log" >&2
            return 1
        fi
        sleep 0.05
    done
}

# link_redis DIR : makes Valkey's programs available as redis-server and
# redis-cli, which the tests call as well.
link_redis()
{
    local server client
    if ! find_program redis-server >/dev/null && server=$(find_redis); then
        mkdir -p "$1" && ln -s "$server" "$1/redis-server" || return 1
    fi
    if ! find_program redis-cli >/dev/null &&
        client=$(find_program valkey-cli); then
        mkdir -p "$1" && ln -s "$client" "$1/redis-cli" || return 1
    fi
    [ ! -d "$1" ] || export PATH=$1:$PATH
}

answers_pong()
{
    [ "$(redis-cli -s "$1" ping)" = PONG ]
}

# find_redis_options : into $redis_options what a version has of them: it allows
# DEBUG, and keeps its command line, so that the stage can start it again. Before
# 7.0, DEBUG is always allowed; the options do not exist, or not yet.
find_redis_options()
{
    redis_options=(--enable-debug-command yes --set-proc-title no)
    ! redis-server --version | grep -qE ' v=[0-6]\.' || redis_options=()
}

start_redis()
{
    local dir=$1 socket=$1/redis.sock
    mkdir -p "$dir" || return 1
    if ! find_program redis-server >/dev/null; then
        echo "Neither redis-server nor valkey-server is in PATH: install" \
            "one (Debian: redis-tools)." >&2
        advise redis-tools
        return 1
    fi
    find_redis_options
    start_process "$dir/log" "$(find_program redis-server)" --port 0 \
        --unixsocket "$socket" --unixsocketperm 700 --save '' \
        --appendonly no --dir "$dir" "${redis_options[@]}"
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

start_database()
{
    if find_mariadb >/dev/null; then
        start_mariadb "$1"
    elif find_mysql >/dev/null; then
        start_mysql "$1"
    else
        echo "Neither mariadbd nor mysqld is in PATH: install one" \
            "(Debian: mariadb-server-core)." >&2
        advise mariadb-server-core
        return 1
    fi
}

# make_database LOG COMMAND... : makes the data directory of a server.
make_database()
{
    local log=$1
    shift
    "$@" >"$log" 2>&1 && return 0
    echo "$1 failed:" >&2
    tail -n 20 "$log" >&2
    return 1
}

# The data do not outlive the directory: no durability, and small buffers.
database_options=(--skip-networking --skip-name-resolve --skip-log-bin
    --max-connections=500 --character-set-server=utf8mb4
    --max-allowed-packet=256M
    --innodb-buffer-pool-size=128M --innodb-flush-log-at-trx-commit=2
    --innodb-doublewrite=0 --innodb-fast-shutdown=2 --key-buffer-size=1M)

# serve_database NAME DIR PROGRAM OPTION... : starts the server on a directory.
serve_database()
{
    local name=$1 dir=$2 socket=$2/socket
    shift 2
    start_process "$dir/log" "$@" --socket="$socket" --pid-file="$dir/pid" \
        "${database_options[@]}"
    await_server "$name" "$started_pid" "$dir/log" \
        create_database "$socket" || return 1
    export MYSQL_URI="mysql://root@/snowshed?socket=$socket"
}

start_mariadb()
{
    local dir=$1 install places
    install=$(find_program mariadb-install-db ||
        find_program mysql_install_db) || return 1
    places=(--no-defaults --datadir="$dir/data" --tmpdir="$dir/tmp")
    [ "$(id -u)" -ne 0 ] || places+=(--user=root)
    mkdir -p "$dir/tmp" || return 1
    # Without --force the machine's own name must resolve.
    make_database "$dir/log" "$install" "${places[@]}" --force \
        --auth-root-authentication-method=normal --skip-test-db || return 1
    serve_database mariadbd "$dir" "$(find_mariadb)" "${places[@]}" \
        --innodb-log-file-size=32M --aria-pagecache-buffer-size=8M
}

start_mysql()
{
    local dir=$1 server places
    server=$(find_mysql) || return 1
    # The default directory of --secure-file-priv may not exist.
    places=(--no-defaults --datadir="$dir/data" --tmpdir="$dir/tmp"
        --secure-file-priv=NULL)
    [ "$(id -u)" -ne 0 ] || places+=(--user=root)
    mkdir -p "$dir/tmp" || return 1
    if ! make_database "$dir/log" "$server" "${places[@]}" \
        --initialize-insecure; then
        echo "If AppArmor denies it access to $dir, use a server that is" \
            "already running with --mysql URI." >&2
        return 1
    fi
    serve_database mysqld "$dir" "$server" "${places[@]}" --mysqlx=OFF
}

# -------------------------------------------------------------------- stop

# Run a command in a process group of its own, which a signal to this script
# ends. (A shell runs no trap while it waits for a foreground command.)
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

# end_processes ID... : TERM, then KILL after a deadline. A negative id is a
# process group.
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

# End what was started here and remove the directory; keep the exit status.
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
    if [ -n "$servers_guard_pid" ]; then
        end_processes "-$servers_guard_pid"
        wait "$servers_guard_pid" 2>/dev/null || true
        servers_guard_pid=""
    fi
    return "$status"
}

# ------------------------------------------------------------------- SQL

# run_sql URI [FILE...] : runs the statements in the files, or on standard
# input, in the database that a mysql:// URI names.
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
    # The password is passed in the environment: command lines are public.
    cat "$@" | MYSQL_PWD=$password "$client" "${arguments[@]}"
}
