#!/usr/bin/env bash
# What a real card must show before a claim about a GPU is made. Needs python3 with torch, transformers, accelerate, psutil.
#   [ONLY=REGEX] tests/gpu/all.sh CARRY OUT [PART…]      ONLY: which runs of leakbench
# CARRY is what tests/gpu/carry.sh packed elsewhere: strandline (the command), libstrandline.so, wheels/trl-*.whl, tests/ (compiled
# tests: preload_equality, snapshot_equality, steps, …, whatever does without the simulated device). Results go to OUT, and what is
# printed also to OUT/all.txt.
# PARTs: info leakbench equality kill cost (default: all of them, in this order).
set -u
cd "$(dirname "$0")/../.."
carry=$1; out=$2; shift 2
parts=${*:-info leakbench equality kill cost}
mkdir -p "$out"
exec > >(tee -a "$out/all.txt") 2>&1
for version in 1.3.0 1.6.0; do
  [[ " $parts " != *" leakbench "* ]] || ls "$carry"/wheels/trl-$version-*.whl > /dev/null || exit 2
done
work=$(mktemp -d)
py=${PYTHON:-python3}
export XDG_CACHE_HOME="$work/cache" PYTHONUNBUFFERED=1
chmod +x "$carry/strandline"
part() { case " $parts " in *" $1 "*) printf '\n== %s (%s)\n' "$1" "$(date +%H:%M:%S)"; return 0;; esac; return 1; }

if part info; then
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv
  "$py" -c 'import torch, sys; print("torch", torch.__version__, "python", sys.version.split()[0])'
  cat /sys/devices/system/clocksource/clocksource0/current_clocksource
  "$carry/strandline" --version
  "$carry/strandline" doctor -- "$py" -c pass 2>&1
fi
if part leakbench; then
  # runs side by side do not disturb each other's memory; the two whose truth depends on time run alone
  timeout 500 "$py" tests/leakbench/compare.py --strandline "$carry/strandline" --python "$py" --wheels "$PWD/$carry/wheels" \
    --out "$work/lb" --jobs 10 --only "${ONLY:-^(?!e_)}" 2>&1
  timeout 120 "$py" tests/leakbench/compare.py --strandline "$carry/strandline" --python "$py" --wheels "$PWD/$carry/wheels" \
    --out "$work/lb_e" --only "${ONLY:-^e_}" 2>&1
  mkdir -p "$out/lb"; cat "$work/lb/table.md" "$work/lb_e/table.md" > "$out/table.md"
  cp "$work/lb/results.json" "$out/results.json"; cp "$work/lb_e/results.json" "$out/results_e.json"
  tar -C "$work" -czf "$out/texts.tgz" --exclude '*.strand' lb lb_e
  cat "$work/lb/a_offload_vl.txt"
fi
if part equality; then (
  # the tests themselves, compiled elsewhere: torch's own history of the same run is the oracle. One at a time: one of them
  # fills the card.
  export STRANDLINE_TEST_ROOT="$PWD" STRANDLINE_TEST_SO="$PWD/$carry/libstrandline.so"
  export STRANDLINE_TEST_COMMAND="$PWD/$carry/strandline" STRANDLINE_TEST_PYTHON; STRANDLINE_TEST_PYTHON=$(command -v "$py")
  chmod +x "$carry"/tests/*
  # leakbench's holders are asked by holder.sh: the test has the simulated device.
  skip="--skip leakbench_holders"; [ "$(nvidia-smi -L | wc -l)" -ge 2 ] || skip+=" --skip two_devices"
  # shellcheck disable=SC2086
  for t in "$carry"/tests/*; do timeout 280 "$t" --test-threads 1 $skip 2>&1 | tail -60; done
) fi
if part kill; then timeout 200 "$py" tests/python/kill.py "$carry/libstrandline.so" "$carry/strandline" "$work/kill" 2>&1; fi
if part cost; then
  timeout 560 tests/gpu/bench.sh "$carry/libstrandline.so" "$carry/strandline" "$py" "$work/cost" 2>&1 | tee "$out/cost.txt"
  cp "$work"/cost/*.json "$out/"
fi
rm -rf "$work"
printf '\n== end (%s)\n' "$(date +%H:%M:%S)"
