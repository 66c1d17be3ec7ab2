#!/usr/bin/env bash
# Jobs of three seconds, and two ranks on one card: is the holder found, is `kept_at` the right statement, what did looking for it pause the
# job for, and does the headline name the rank that leaks. Five minutes with 16 cores.
#   tests/gpu/short.sh CARRY OUT [PART…]      CARRY as in all.sh: strandline, wheels/trl-*.whl; PARTs: holders ranks kinds (default: all)
set -u
cd "$(dirname "$0")/../.."
carry=$(cd "$1" && pwd); out=$2; shift 2
parts=${*:-holders ranks kinds}
py=$(command -v "${PYTHON:-python3}")
mkdir -p "$out"
work=$(mktemp -d)
export XDG_CACHE_HOME="$work/cache" PYTHONDONTWRITEBYTECODE=1
chmod +x "$carry/strandline"
status=0
if [[ " $parts " == *" holders "* ]]; then
  timeout 400 "$py" tests/leakbench/holders_table.py --strandline "$carry/strandline" --python "$py" --wheels "$carry/wheels" --out "$work/short" \
    --jobs "${JOBS:-8}" --keeps 2>&1 | tee "$out/short.txt"
  [ "${PIPESTATUS[0]}" = 0 ] || status=1
  cp "$work/short/holders_table.json" "$out/"
  tar -C "$work" -czf "$out/short-texts.tgz" --exclude '*.strand' short
  "$py" - "$out/holders_table.json" <<'EOF'
import json, sys
costs = [r["cost"] for r in json.load(open(sys.argv[1])) if r.get("cost")]
for key in sorted({k for c in costs for k in c if isinstance(c[k], (int, float))}):
    values = sorted(c.get(key) or 0 for c in costs)
    print(f"{key}: median {values[len(values) // 2]:g}, largest {values[-1]:g} of {len(values)} jobs")
EOF
fi
if [[ " $parts " == *" ranks "* ]]; then
  # gloo, so that two ranks may share the card.
  mkdir "$work/said"
  timeout 120 "$carry/strandline" run -o "$work/ranks" -- "$py" -m torch.distributed.run --standalone --nproc-per-node 2 tests/python/ranks.py \
    ddp "$work/said" --backend gloo --leak 1 > "$out/ranks.txt" 2>&1
  "$carry/strandline" report "$work/ranks" 2>&1 | tee "$out/ranks-report.txt" | head -12
  grep -qE '^strandline: (LEAK|GROWING) in .*rank 1\b' "$out/ranks-report.txt" || { echo "the headline does not name rank 1"; status=1; }
fi
if [[ " $parts " == *" kinds "* ]]; then
  "$py" tests/gpu/kinds.py "$carry/strandline" "$work/kinds" 2>&1 | tee "$out/kinds.txt"
  [ "${PIPESTATUS[0]}" = 0 ] || status=1
fi
rm -rf "$work"
exit "$status"
