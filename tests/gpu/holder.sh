#!/usr/bin/env bash
# Who holds leakbench's leaks, asked on this card: the holder that each report names, what looking for it paused the job for, and that the
# job's own numbers are those of one that is not looked into. Then tests/holder.rs, where its binary was carried: about a minute.
#   tests/gpu/holder.sh CARRY OUT      CARRY as in all.sh: strandline, wheels/trl-*.whl, tests/*holder*
set -u
cd "$(dirname "$0")/../.."
carry=$(cd "$1" && pwd); out=$2
py=$(command -v "${PYTHON:-python3}")
mkdir -p "$out"
work=$(mktemp -d)
export XDG_CACHE_HOME="$work/cache"
chmod +x "$carry/strandline"
timeout 80 "$py" tests/leakbench/holders.py --strandline "$carry/strandline" --python "$py" --wheels "$carry/wheels" --out "$work/holders" --jobs "${JOBS:-8}" ${SIMULATED:+--simulated} 2>&1
cp "$work"/holders/holders.json "$work"/holders/*.txt "$out/"
for t in "$carry"/tests/*holder*; do
  [ -f "$t" ] || continue
  chmod +x "$t"
  STRANDLINE_TEST_ROOT="$PWD" STRANDLINE_TEST_SO="$carry/libstrandline.so" STRANDLINE_TEST_COMMAND="$carry/strandline" STRANDLINE_TEST_PYTHON="$py" \
    timeout 60 "$t" --skip leakbench_holders 2>&1 | grep -E "^test |panicked|left:|right:"
done
rm -rf "$work"
