#!/bin/sh
# muster beside the other collective libraries of this machine, in turns, on the same cells.
#
# usage: benches/peers/run.sh MUSTER [-g RANKS] [-r ROUNDS] [-t MILLISECONDS] [-p NAME=PROGRAM]... [CELL...]
#   RANKS         numbers of ranks, separated by commas; 2,4,8 if not given
#   ROUNDS        how often everything is measured, all programs in turns; 5 if not given
#   MILLISECONDS  time for each cell in each round; 100 if not given
#   NAME=PROGRAM  mpi.c compiled elsewhere for openmpi, mpich or intelmpi, where the headers are not installed
#   CELL          collective:bytes, such as all_reduce:65536; all_reduce_bf16 is all_reduce of another type;
#                 group_create:0 makes a group, uses it once and destroys it; objects (all_gather_object:4096,
#                 broadcast_object:4096) are byte strings, and MPI has none
#
# Peers: Open MPI (as it comes, and with its shared-memory collectives where each rank has a
# processor), MPICH, Intel MPI (in I_MPI_ROOT), torch gloo (of PYTHON, python3 if that is not set). A
# peer that is not installed, does not compile or does not run is named. All but gloo, which cannot, keep their
# ranks to processors. f32 or bf16, sum, out of place. Prints medians over rounds of the median time of the slowest
# rank, and how many times as long each peer took as muster: the median of the ratios of single rounds, with the
# least and the greatest. A cell that a peer has not is shown as "-".
set -eu
here=$(cd "$(dirname "$0")" && pwd)
muster=$1
shift
ranks=2,4,8
rounds=5
time=100
prebuilt=""
while getopts g:r:t:p: option; do
    case $option in
    g) ranks=$OPTARG ;;
    r) rounds=$OPTARG ;;
    t) time=$OPTARG ;;
    p) prebuilt="$prebuilt $OPTARG" ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
if [ $# -eq 0 ]; then
    set -- barrier:0 all_reduce:8 all_reduce:1024 all_reduce:65536 all_reduce:1048576 all_reduce:16777216 \
        all_gather:16777216 reduce_scatter:16777216 all_to_all:8192 all_to_all:1048576 all_to_all:16777216 \
        all_to_all_v:16777216 broadcast:1024 broadcast:16777216 all_reduce_bf16:65536 all_reduce_bf16:16777216
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT INT TERM
cpus=$(nproc)
python=${PYTHON:-python3}
root=""
[ "$(id -u)" -eq 0 ] && root=--allow-run-as-root

echo "machine: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $cpus processors, $(uname -sr), load $(cut -d' ' -f1-3 /proc/loadavg)"
echo "muster:  $("$muster" --version)"
peers="private region"
# Where the programs of an MPI are: the launcher and the compiler.
launcher_of() {
    case $1 in
    intelmpi) echo "${I_MPI_ROOT:-I_MPI_ROOT-is-not-set}/bin/mpiexec.hydra" ;;
    *) echo "mpirun.$1" ;;
    esac
}
compiler_of() {
    case $1 in
    intelmpi) echo "${I_MPI_ROOT:-}/bin/mpicc" ;;
    *) echo "mpicc.$1" ;;
    esac
}
for mpi in openmpi mpich intelmpi; do
    given=""
    launcher=$(launcher_of "$mpi")
    compiler=$(compiler_of "$mpi")
    for pair in $prebuilt; do
        [ "${pair%%=*}" = "$mpi" ] && given=${pair#*=}
    done
    if ! command -v "$launcher" >/dev/null; then
        echo "missing: $mpi (no $launcher)"
    elif [ -n "$given" ] && ! cp "$given" "$folder/$mpi"; then
        echo "missing: $mpi ($given cannot be copied)"
    elif [ -z "$given" ] && ! command -v "$compiler" >/dev/null; then
        echo "missing: $mpi (no $compiler)"
    elif [ -z "$given" ] && ! "$compiler" -O3 -march=native -o "$folder/$mpi" "$here/mpi.c" 2>"$folder/$mpi.err"; then
        echo "missing: $mpi (does not compile: $(head -1 "$folder/$mpi.err"))"
    else
        echo "$mpi:  $("$launcher" --version 2>&1 | grep -m1 '[0-9]\.[0-9]')"
        peers="$peers $mpi"
        [ "$mpi" = openmpi ] && peers="$peers openmpi-sm"
    fi
done
if "$python" -c 'import torch.distributed' 2>/dev/null; then
    echo "gloo:    torch $("$python" -c 'import torch; print(torch.__version__)')"
    peers="$peers gloo"
else
    echo "missing: gloo ($python cannot import torch.distributed)"
fi

# Prints collective,bytes,median_us,min_us,wrong for each cell.
of_muster() {
    memory=$1
    n=$2
    shift 2
    for cell in "$@"; do
        bytes=${cell#*:}
        name=${cell%:*}
        collective=${name%_bf16}
        dtype=f32
        [ "$name" = "$collective" ] || dtype=bf16
        case $memory$name in
        regionbarrier | regiongroup_create | region*_object) continue ;;
        esac
        "$muster" bench "$collective" -d "$dtype" -g "$n" -b "$bytes" -e "$bytes" --place out --pin --memory "$memory" --time "${time}ms" \
            --confidence 0 --format csv 2>/dev/null |
            awk -F, -v bytes="$bytes" -v name="$name" '
                NR == 1 {for (at = 1; at <= NF; at++) column[$at] = at}
                NR > 1 {print name "," bytes "," $column["median_us"] "," $column["min_us"] "," $column["wrong"] + 0}'
    done
}
one() {
    peer=$1
    n=$2
    shift 2
    case $peer in
    private | region) of_muster "$peer" "$n" "$@" ;;
    openmpi)
        mpirun.openmpi $root --oversubscribe --bind-to core:overload-allowed --map-by core:OVERSUBSCRIBE \
            -n "$n" "$folder/openmpi" "$time" "$@"
        ;;
    openmpi-sm)
        [ "$n" -le "$cpus" ] || return 0
        mpirun.openmpi $root --mca coll_sm_priority 100 -n "$n" "$folder/openmpi" "$time" "$@"
        ;;
    mpich) timeout 600 mpirun.mpich -bind-to core -n "$n" "$folder/mpich" "$time" "$@" ;;
    # It does so unless told otherwise.
    intelmpi) timeout 600 "$(launcher_of intelmpi)" -n "$n" "$folder/intelmpi" "$time" "$@" ;;
    gloo) "$python" "$here/gloo.py" "$n" "$time" "$@" ;;
    esac
}
for round in $(seq "$rounds"); do
    for n in $(echo "$ranks" | tr , ' '); do
        for peer in $peers; do
            if ! one "$peer" "$n" "$@" >"$folder/out" 2>"$folder/err"; then
                echo "failed:  $peer on $n ranks in round $round: $(tail -1 "$folder/err")"
            fi
            awk -F, -v p="$peer" -v n="$n" -v r="$round" 'NF == 5 {print p, n, r, $1 ":" $2, $3, $5}' "$folder/out" >>"$folder/all"
        done
    done
done
awk -v peers="$peers" -v rounds="$rounds" -v ranks="$ranks" -v cells="$*" -f "$here/ratios.awk" "$folder/all"
echo "load at the end: $(cut -d' ' -f1-3 /proc/loadavg)"
