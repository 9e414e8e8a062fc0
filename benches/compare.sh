#!/bin/sh
# Whether `muster compare` stays quiet where nothing changed, and finds what did.
#
# usage: benches/compare.sh MUSTER [PAIRS] [ROUNDS] [-- options of bench]
#
# Measures PAIRS (10) pairs of runs of one program, compares each pair (A/A), and then plants a
# slow-down of a tenth: the samples of one row of the second file are multiplied by 1.1. The planted
# row must be found, and no other one. Ends with 1 if anything was not as it should be.
set -eu
muster=$1
pairs=${2:-10}
rounds=${3:-10}
if [ $# -gt 3 ]; then shift 3; else shift $#; fi
if [ "${1:-}" = "--" ]; then shift; fi
if [ $# -eq 0 ]; then
    set -- all_reduce all_gather all_to_all -b 8 -e 2M -f 64 -g 2,4 --time 600ms
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT INT TERM
alarms=0
missed=0
others=0
echo "program: $("$muster" --version); load: $(cut -d' ' -f1-3 /proc/loadavg); bench $* --rounds $rounds"
for pair in $(seq "$pairs"); do
    base=$folder/base-$pair.json
    new=$folder/new-$pair.json
    "$muster" bench "$@" --rounds "$rounds" --save "$base" >/dev/null 2>&1
    "$muster" bench "$@" --rounds "$rounds" --save "$new" >/dev/null 2>&1
    code=0
    "$muster" compare "$base" "$new" >"$folder/same.txt" || code=$?
    [ "$code" -eq 0 ] || { alarms=$((alarms + 1)); cat "$folder/same.txt"; }
    # The row in the middle of the file, a tenth slower.
    row=$(jq '(.records | length) / 2 | floor' "$new")
    jq -c --argjson row "$row" '.records[$row].samples_us |= map(map(. * 1.1))' "$new" >"$folder/planted.json"
    found=0
    "$muster" compare "$base" "$folder/planted.json" --format json >"$folder/planted-out.json" || found=$?
    slower=$(jq -r '[.rows[] | select(.fate == "regressed")] | length' "$folder/planted-out.json")
    ratio=$(jq -r '[.rows[] | select(.fate == "regressed")][0].ratio // "none"' "$folder/planted-out.json")
    [ "$found" -eq 50 ] || missed=$((missed + 1))
    [ "$slower" -le 1 ] || others=$((others + 1))
    rows=$(jq '.records | length' "$new")
    echo "pair $pair: $rows rows, A/A exit $code: $(tail -1 "$folder/same.txt"); planted: exit $found, $slower row(s) slower, ratio $ratio"
done
echo "A/A alarms: $alarms of $pairs; planted slow-downs missed: $missed of $pairs; pairs with other rows blamed: $others"
[ "$alarms" -eq 0 ] && [ "$missed" -eq 0 ] && [ "$others" -eq 0 ]
