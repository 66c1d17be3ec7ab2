#!/usr/bin/env bash
# What an alloc/free pair costs bare, under torch's own history and under the preload, on this machine.
#   tests/gpu/cost.sh LIBSTRANDLINE PYTHON DIR
set -eu
cd "$(dirname "$0")/../.."
lib=$1 py=$2 dir=$3; mkdir -p "$dir"
for depth in 5 23 100; do
  for round in 1 2 3; do
    bare=$("$py" tests/python/pair_cost.py "$depth" 5000)
    ours=$(LD_PRELOAD=$PWD/$lib STRANDLINE_QUIET=1 STRANDLINE_OUT="$dir/$depth-$round.strand" "$py" tests/python/pair_cost.py "$depth" 5000)
    printf '{"depth": %s, "bare": %s, "preload": %s}\n' "$depth" "$bare" "$ours"
  done
done | tee "$dir/pairs.jsonl" | "$py" -c '
import json, statistics, sys
rows = [json.loads(l) for l in sys.stdin]
print("added ns per torch.empty+del pair (medians of 3 pairs of processes), Python stacks")
for d in sorted({r["depth"] for r in rows}):
    r = [x for x in rows if x["depth"] == d]
    base = statistics.median(x["bare"]["plain"] for x in r)
    torch = statistics.median(x["bare"]["history"] - x["bare"]["plain"] for x in r)
    ours = statistics.median(x["preload"]["plain"] - x["bare"]["plain"] for x in r)
    print(f"depth {d:3d}: bare {base:.0f}, torch history +{torch:.0f}, strandline +{ours:.0f}, ratio {torch / ours:.1f}")
'
