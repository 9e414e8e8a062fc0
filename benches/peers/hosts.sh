#!/bin/sh
# muster beside gloo, Open MPI and MPICH between hosts, in turns, on the same cells. The hosts are network namespaces of this
# machine on one bridge, made here and removed at the end, so it needs root.
#
# usage: benches/peers/hosts.sh MUSTER [-g HOSTSxRANKS] [-r ROUNDS] [-t MILLISECONDS] [-d MILLISECONDS] [-b] [CELL...]
#   HOSTSxRANKS   hosts and ranks on each, separated by commas; 2x1,2x2,2x4,4x2 if not given
#   ROUNDS        how often everything is measured, all programs in turns; 5 if not given
#   MILLISECONDS  -t: time for each cell in each round; 100 if not given. -d: delay of what a host sends, by tc
#   -b            beside two busy loops
#   CELL          as for run.sh
#
# Prints what a raw stream between two hosts carries, the table of run.sh, and how many bytes left the first host in one call
# of muster, by the counters of its interface. A peer that is not installed, or does not run, is named.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
muster=$(realpath "$1")
shift
shapes=2x1,2x2,2x4,4x2
rounds=5
time=100
delay=""
busy=""
while getopts g:r:t:d:b option; do
    case $option in
    g) shapes=$OPTARG ;;
    r) rounds=$OPTARG ;;
    t) time=$OPTARG ;;
    d) delay=$OPTARG ;;
    b) busy=yes ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
if [ $# -eq 0 ]; then
    set -- barrier:0 all_reduce:8 all_reduce:65536 all_reduce:1048576 all_reduce:16777216 all_gather:65536 all_gather:16777216 \
        reduce_scatter:65536 reduce_scatter:16777216 broadcast:65536 broadcast:16777216 all_to_all:65536 all_to_all:16777216
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "hosts.sh makes network namespaces, which needs root" >&2
    exit 1
fi
hosts=0
for shape in $(echo "$shapes" | tr , ' '); do
    [ "${shape%x*}" -le "$hosts" ] || hosts=${shape%x*}
done
tag=mh$$
folder=$(mktemp -d)
loops=""
clean() {
    [ -z "$loops" ] || kill $loops 2>/dev/null || :
    for host in wire $(seq 0 $((hosts - 1))); do
        ip netns delete "$tag$host" 2>/dev/null || :
    done
    rm -rf "$folder"
}
trap clean EXIT
trap 'exit 1' INT TERM
ip netns add "${tag}wire"
ip -n "${tag}wire" link add bridge type bridge
ip -n "${tag}wire" link set bridge up
for host in $(seq 0 $((hosts - 1))); do
    ip netns add "$tag$host"
    ip link add eth0 netns "$tag$host" type veth peer name "host$host" netns "${tag}wire"
    ip -n "${tag}wire" link set "host$host" master bridge up
    ip -n "$tag$host" address add "10.219.0.$((host + 1))/24" dev eth0
    ip -n "$tag$host" link set lo up
    ip -n "$tag$host" link set eth0 up
    if [ -n "$delay" ] && ! ip netns exec "$tag$host" tc qdisc add dev eth0 root netem delay "${delay}ms" 2>"$folder/err"; then
        echo "missing: delay ($(tail -1 "$folder/err"))"
        delay=""
    fi
done
# What MPI starts on another host, instead of ssh: the hosts have one file system.
cat >"$folder/agent" <<'EOF'
#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
host=$1
shift
export TMPDIR="${0%/*}/$host"
mkdir -p "$TMPDIR"
exec "${0%/*}/on" "$host" sh -c "$*"
EOF
# Runs a command on a host, which has a name of its own.
cat >"$folder/on" <<'EOF'
#!/bin/sh
exec ip netns exec "$1" unshare --uts sh -c 'hostname "$0"; exec "$@"' "$@"
EOF
chmod +x "$folder/agent" "$folder/on"
python=${PYTHON:-python3}
echo "machine: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(nproc) processors, $(uname -sr), load $(cut -d' ' -f1-3 /proc/loadavg)"
echo "muster:  $("$muster" --version)${delay:+, delay ${delay} ms}${busy:+, beside two busy loops}"
# The script compares two ways of muster: with all transports, and with TCP alone.
peers="auto tcp"
for mpi in openmpi mpich; do
    if ! command -v "mpirun.$mpi" >/dev/null || ! command -v "mpicc.$mpi" >/dev/null; then
        echo "missing: $mpi (no mpirun.$mpi or mpicc.$mpi)"
    elif ! "mpicc.$mpi" -O3 -march=native -o "$folder/$mpi" "$here/mpi.c" 2>"$folder/err"; then
        echo "missing: $mpi (does not compile: $(head -1 "$folder/err"))"
    else
        echo "$mpi:  $("mpirun.$mpi" --version 2>&1 | grep -m1 '[0-9]\.[0-9]')"
        peers="$peers $mpi"
    fi
done
if "$python" -c 'import torch.distributed' 2>/dev/null; then
    echo "gloo:    torch $("$python" -c 'import torch; print(torch.__version__)')"
    peers="$peers gloo"
else
    echo "missing: gloo ($python cannot import torch.distributed)"
fi
if [ -n "$busy" ]; then
    for _ in 1 2; do
        sh -c 'while :; do :; done' &
        loops="$loops $!"
    done
fi

# Starts a command as the ranks of a shape, and prints what rank 0 says.
port=20000
ranks() {
    local_size=${shape#*x}
    size=$((${shape%x*} * local_size))
    port=$((port + 1))
    started=""
    for rank in $(seq $((size - 1)) -1 0); do
        host=$((rank / local_size))
        MASTER_ADDR=10.219.0.1 MASTER_PORT=$port RANK=$rank WORLD_SIZE=$size LOCAL_RANK=$((rank % local_size)) \
            LOCAL_WORLD_SIZE=$local_size GROUP_RANK=$host GLOO_SOCKET_IFNAME=eth0 \
            timeout 300 "$folder/on" "$tag$host" "$@" >"$folder/out.$rank" 2>"$folder/err.$rank" &
        started="$started $!"
    done
    code=0
    for pid in $started; do
        wait "$pid" || code=1
    done
    cat "$folder/out.0"
    cat "$folder/err.0" >&2
    return $code
}
# Prints collective,bytes,median_us,min_us,wrong for each cell.
of_muster() {
    transport=$1
    shift
    for cell in "$@"; do
        bytes=${cell#*:}
        ranks "$muster" bench "${cell%:*}" -d f32 -b "$bytes" -e "$bytes" --place out --time "${time}ms" --confidence 0 \
            --transport "$transport" --format csv |
            awk -F, -v cell="${cell%:*},$bytes" '
                NR == 1 {for (at = 1; at <= NF; at++) column[$at] = at}
                NR > 1 {print cell "," $column["median_us"] "," $column["min_us"] "," $column["wrong"] + 0}'
    done
}
of_mpi() {
    mpi=$1
    shift
    each=${shape#*x}
    names=""
    for host in $(seq 0 $((${shape%x*} - 1))); do
        names="$names,$tag$host"
        [ "$mpi" = mpich ] || names="$names:$each"
    done
    if [ "$mpi" = mpich ]; then
        # Its libraries know the machine by more than its name, and would use shared memory between hosts.
        TMPDIR=$folder UCX_TLS=tcp,self FI_PROVIDER=tcp timeout 600 "$folder/on" "${tag}0" mpirun.mpich -iface eth0 -localhost "${tag}0" -launcher ssh \
            -launcher-exec "$folder/agent" -hosts "${names#,}" -ppn "$each" -n $((${shape%x*} * each)) "$@"
    else
        OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TMPDIR=$folder timeout 600 "$folder/on" "${tag}0" mpirun.openmpi \
            --mca plm_rsh_agent "$folder/agent" --mca btl_tcp_if_include eth0 --host "${names#,}" --oversubscribe --bind-to none \
            -n $((${shape%x*} * each)) "$@"
    fi
}
one() {
    peer=$1
    shift
    case $peer in
    auto | tcp) of_muster "$peer" "$@" ;;
    openmpi | mpich) of_mpi "$peer" "$folder/$peer" "$time" "$@" ;;
    gloo) ranks "$python" "$here/gloo.py" env "$time" "$@" ;;
    esac
}

echo "raw stream: $(shape=2x1 ranks python3 "$here/stream.py") MB/s"
for round in $(seq "$rounds"); do
    for shape in $(echo "$shapes" | tr , ' '); do
        for peer in $peers; do
            if ! one "$peer" "$@" >"$folder/out" 2>"$folder/err"; then
                echo "failed:  $peer on $shape in round $round: $(grep -m1 '[a-z]' "$folder/err")"
            fi
            awk -F, -v p="$peer" -v n="$shape" -v r="$round" 'NF == 5 {print p, n, r, $1 ":" $2, $3, $5}' "$folder/out" >>"$folder/all"
        done
    done
done
awk -v peers="$peers" -v rounds="$rounds" -v ranks="$shapes" -v cells="$*" -f "$here/ratios.awk" "$folder/all"

# Bytes that leave the first host in one call: by two numbers of calls, so that bring-up does not count.
sent() {
    before=$(ip netns exec "${tag}0" cat /sys/class/net/eth0/statistics/tx_bytes)
    ranks "$muster" bench "${cell%:*}" -d f32 -b "${cell#*:}" -e "${cell#*:}" --place out -w 0 -c 0 -n "$1" --format csv >/dev/null 2>&1 || :
    after=$(ip netns exec "${tag}0" cat /sys/class/net/eth0/statistics/tx_bytes)
    echo $((after - before))
}
echo
echo "bytes that leave the first host in one call of muster"
for shape in $(echo "$shapes" | tr , ' '); do
    for cell in "$@"; do
        few=$(sent 10)
        many=$(sent 30)
        echo "  $shape  $cell  $(((many - few) / 20))"
    done
done
echo "load at the end: $(cut -d' ' -f1-3 /proc/loadavg)"
