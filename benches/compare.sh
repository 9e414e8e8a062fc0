#!/bin/sh
# Whether `muster compare` stays quiet where nothing changed, and finds what did.
#
# usage: benches/compare.sh MUSTER [PAIRS] [-- options of bench]
#        FOLDER=results benches/compare.sh MUSTER [PAIRS]    compare files that an earlier run kept there
#
# For each of PAIRS (10) pairs one program is measured on two sides, in turns: four blocks of BLOCK (5) rounds a
# side, each round a world of ranks started anew and pinned. The two sides are compared (A/A): no alarm may
# come (PIN= leaves the ranks free). Then a tenth is planted on one row of the second side, another one in each pair: that row must be
# found, and no other. Ends with 1 if anything was not so. Needs jq.
set -eu
muster=$1
pairs=${2:-10}
if [ $# -gt 2 ]; then shift 2; else shift $#; fi
if [ "${1:-}" = "--" ]; then shift; fi
if [ $# -eq 0 ]; then
    set -- all_reduce all_gather all_to_all -b 8 -e 512K -f 256 -g 2 --time 100ms
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT INT TERM
folder=${FOLDER:-$scratch}
mkdir -p "$folder"

# judge OUTPUT PAIR NEW-SIDE-PREFIX: compares the blocks of a pair, prints the exit code.
judge() {
    code=0
    "$muster" compare "$folder/base-$2-1.json" "$3-$2-1.json" \
        --more-base "$folder/base-$2-2.json" --more-base "$folder/base-$2-3.json" --more-base "$folder/base-$2-4.json" \
        --more-new "$3-$2-2.json" --more-new "$3-$2-3.json" --more-new "$3-$2-4.json" \
        --format json >"$1" || code=$?
    echo "$code"
}

alarms=0
missed=0
others=0
echo "program: $("$muster" --version); load: $(cut -d' ' -f1-3 /proc/loadavg); $(nproc) processors"
for pair in $(seq "$pairs"); do
    for block in 1 2 3 4; do
        for side in base new; do
            file=$folder/$side-$pair-$block.json
            [ -f "$file" ] || "$muster" bench "$@" ${PIN---pin} --rounds "${BLOCK:-5}" --save "$file" >/dev/null 2>&1
        done
    done
    same=$(judge "$scratch/same.json" "$pair" "$folder/new")
    [ "$same" -eq 0 ] || alarms=$((alarms + 1))
    rows=$(jq '.records | length' "$folder/new-$pair-1.json")
    row=$(((pair - 1) % rows))
    for block in 1 2 3 4; do
        jq -c --argjson row "$row" '.records[$row].samples_us |= map(map(. * 1.1))' \
            "$folder/new-$pair-$block.json" >"$scratch/planted-$pair-$block.json"
    done
    found=$(judge "$scratch/found.json" "$pair" "$scratch/planted")
    slower=$(jq -r '[.rows[] | select(.fate == "regressed")] | length' "$scratch/found.json")
    name=$(jq -r --argjson row "$row" '.records[$row] | "\(.collective) \(.bytes) B"' "$folder/new-$pair-1.json")
    ratio=$(jq -r '[.rows[] | select(.fate == "regressed")][0].ratio // "none"' "$scratch/found.json")
    [ "$found" -eq 50 ] && [ "$slower" -ge 1 ] || missed=$((missed + 1))
    [ "$slower" -le 1 ] || others=$((others + 1))
    remark=$(jq -r '[.remarks[] | select(startswith("rounds in which"))][0] // "" | sub(".*left out: "; "left out: ")' "$scratch/same.json")
    echo "pair $pair: $rows rows; A/A exit $same; planted on $name: exit $found, $slower slower, ratio $ratio; $remark"
done
echo "A/A alarms: $alarms of $pairs; planted tenths missed: $missed of $pairs; pairs with other rows blamed: $others"
[ "$alarms" -eq 0 ] && [ "$missed" -eq 0 ] && [ "$others" -eq 0 ]
