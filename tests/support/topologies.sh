# shellcheck shell=bash
#
# A Redis Cluster, or a primary with a replica and sentinels, on 127.0.0.1 and
# free ports, for tests. Source it after servers.sh; what is started here is
# ended by stop_servers.
#
#   start_cluster DIR PRIMARIES REPLICAS   replicas of each primary; sets
#                           $cluster_uri, $cluster_ports (of the primaries) and
#                           $replica_ports
#   slot_of KEY, node_of KEY              its slot; the port of the node that has it
#   move_slot SLOT FROM TO  ports; with its keys. Its parts are begin_move,
#                           move_keys and end_move
#   start_sentinels DIR     a primary, a replica, three sentinels; sets
#                           $sentinel_uri, $primary_port, $follower_port and
#                           $sentinel_ports
#   at PORT WORD...         asks the server there
#   pid_at PORT             its process
#   node_uris, node_pids    of all servers but the sentinels, with commas between
#                           them, in one order

# Variables are another file's.
# shellcheck disable=SC2034,SC2154
cluster_uri=""
cluster_ports=()
sentinel_uri=""
sentinel_ports=()
primary_port=""
follower_port=""
replica_ports=()
declare -A topology_pids

# Print a port that nobody uses, nor the one 10000 above it, where the nodes of a
# cluster talk to each other.
free_port()
{
    python3 - <<'EOT'
import random, socket
while True:
    port = random.randrange(12000, 22000)
    try:
        for p in (port, port + 10000):
            with socket.socket() as s:
                s.bind(("127.0.0.1", p))
        break
    except OSError:
        continue
print(port)
EOT
}

at()
{
    local port=$1
    shift
    redis-cli -p "$port" "$@"
}

pid_at()
{
    echo "${topology_pids[$1]}"
}

node_ports()
{
    printf '%s\n' "${cluster_ports[@]}" "${replica_ports[@]}" "$primary_port" \
        "$follower_port" | grep .
}

node_uris()
{
    node_ports | sed 's,^,redis://127.0.0.1:,' | paste -sd,
}

node_pids()
{
    local node
    for node in $(node_ports); do
        pid_at "$node"
    done | paste -sd,
}

answers_at()
{
    [ "$(at "$1" ping)" = PONG ]
}

# start_at DIR OPTION... : a server on 127.0.0.1, and the port $started_port,
# which somebody else may take before it does: then on another one.
start_at()
{
    local dir port
    find_redis_options
    for _ in $(seq 10); do
        port=$(free_port) dir=$1/$port
        mkdir -p "$dir" || return 1
        start_process "$dir/log" "$(find_program redis-server)" \
            --port "$port" --bind 127.0.0.1 --save '' --appendonly no \
            --dir "$dir" --repl-diskless-sync-delay 0 \
            "${redis_options[@]}" "${@:2}"
        started_port=$port
        topology_pids[$port]=$started_pid
        await_server redis-server "$started_pid" "$dir/log" \
            answers_at "$port" 2>"$dir/why" && return 0
    done
    cat "$dir/why" >&2
    return 1
}

# ----------------------------------------------------------------- cluster

is_whole()
{
    local port
    for port in "${cluster_ports[@]}" "${replica_ports[@]}"; do
        at "$port" cluster info | grep -q '^cluster_state:ok' || return 1
    done
    for port in "${replica_ports[@]}"; do
        at "$port" role | grep -q '^connected$' || return 1
    done
    for port in "${cluster_ports[@]}"; do
        at "$port" role | grep -q '^master$' || return 1
    done
}

start_cluster()
{
    local dir=$1 ports=()
    for _ in $(seq $(($2 + $2 * $3))); do
        start_at "$dir" --cluster-enabled yes \
            --cluster-node-timeout 5000 || return 1
        ports+=("$started_port")
    done
    cluster_ports=("${ports[@]:0:$2}")
    replica_ports=("${ports[@]:$2}")
    redis-cli --cluster create "${ports[@]/#/127.0.0.1:}" \
        --cluster-replicas "$3" --cluster-yes >"$dir/create" 2>&1 || {
        cat "$dir/create" >&2
        return 1
    }
    await_server 'the cluster' "${topology_pids[${ports[0]}]}" \
        "$dir/create" is_whole || return 1
    cluster_uri=redis+cluster://127.0.0.1:${cluster_ports[0]}
}

slot_of()
{
    at "${cluster_ports[0]}" cluster keyslot "$1"
}

id_at()
{
    at "$1" cluster myid
}

node_of()
{
    at "${cluster_ports[0]}" cluster nodes | awk -v slot="$(slot_of "$1")" '
        {
            for (i = 9; i <= NF; i++) {
                split($i, range, "-")
                last = $i ~ /-/ ? range[2] : range[1]
                if ($i !~ /^\[/ && slot >= range[1] + 0 && slot <= last + 0) {
                    sub(/^.*:/, "", $2)
                    sub(/@.*/, "", $2)
                    print $2
                }
            }
        }'
}

# begin_move SLOT FROM TO : ports; keys can be moved from now on.
begin_move()
{
    at "$3" cluster setslot "$1" importing "$(id_at "$2")" >/dev/null
    at "$2" cluster setslot "$1" migrating "$(id_at "$3")" >/dev/null
}

move_keys()
{
    local key
    at "$2" cluster getkeysinslot "$1" 1000 | while IFS= read -r key; do
        at "$2" migrate 127.0.0.1 "$3" "$key" 0 5000 >/dev/null
    done
}

# end_move SLOT FROM TO
end_move()
{
    local id
    id=$(id_at "$3")
    at "$3" cluster setslot "$1" node "$id" >/dev/null
    at "$2" cluster setslot "$1" node "$id" >/dev/null
}

# move_slot SLOT FROM TO
move_slot()
{
    begin_move "$@"
    move_keys "$@"
    end_move "$@"
}

# --------------------------------------------------------------- sentinels

knows_all()
{
    at "$1" sentinel ckquorum main 2>&1 | grep -q '^OK 3 usable' &&
        at "$1" sentinel replicas main | grep -q '^slave$'
}

start_sentinels()
{
    local dir=$1 port
    start_at "$dir" || return 1
    primary_port=$started_port
    start_at "$dir" --replicaof 127.0.0.1 "$primary_port" || return 1
    follower_port=$started_port
    sentinel_ports=()
    for _ in 1 2 3; do
        start_sentinel "$dir" || return 1
        sentinel_ports+=("$started_port")
    done
    for port in "${sentinel_ports[@]}"; do
        await_server sentinel "${topology_pids[$port]}" "$dir/$port/log" \
            knows_all "$port" || return 1
    done
    sentinel_uri=redis+sentinel://$(IFS=,
        echo "${sentinel_ports[*]/#/127.0.0.1:}")/main
}

start_sentinel()
{
    local dir port
    port=$(free_port) dir=$1/$port
    mkdir -p "$dir" || return 1
    printf '%s\n' "port $port" 'bind 127.0.0.1' "dir $dir" \
        "sentinel monitor main 127.0.0.1 $primary_port 2" \
        'sentinel down-after-milliseconds main 2000' \
        'sentinel failover-timeout main 10000' >"$dir/conf"
    start_process "$dir/log" "$(find_program redis-server)" "$dir/conf" \
        --sentinel
    started_port=$port
    topology_pids[$port]=$started_pid
    await_server sentinel "$started_pid" "$dir/log" answers_at "$port"
}
