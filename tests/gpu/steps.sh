#!/usr/bin/env bash
# Steps of training loops with several optimizers, skipped steps and more, on this card: each count must be the script's own, and the peak
# PyTorch's. About two minutes.
#   tests/gpu/steps.sh CARRY OUT      CARRY as in all.sh: strandline, libstrandline.so
set -u
cd "$(dirname "$0")/../.."
carry=$(cd "$1" && pwd); out=$2; root=$PWD
py=$(command -v "${PYTHON:-python3}")
mkdir -p "$out"
work=$(mktemp -d)
export XDG_CACHE_HOME="$work/cache" PYTHONDONTWRITEBYTECODE=1
chmod +x "$carry/strandline"
cd "$work"
for script in patterns unequal; do
  LD_PRELOAD="$carry/libstrandline.so" "$py" "$root/tests/python/$script.py" >>said.jsonl || echo "$script ended with $?"
done
"$py" - "$carry/strandline" <<'EOF' | tee "$out/steps.txt"
import json, subprocess, sys

wrong = 0
cases = [json.loads(line) for line in open("said.jsonl")]
for case in cases:
    told = subprocess.run([sys.argv[1], "report", f"{case['case']}.strand", "--format", "json"], capture_output=True, text=True)
    process = json.loads(told.stdout)["processes"][0]
    counted, peak = process["steps"], process["devices"][0]["peak_allocated_bytes"]
    if (counted, peak) != (case["steps"], case["peak"]):
        wrong += 1
        print(f"WRONG {case['case']}: {counted} steps of {case['steps']}, peak {peak} of {case['peak']}")
print(f"{len(cases)} loops, {wrong} wrong")
sys.exit(1 if wrong or len(cases) < 60 else 0)
EOF
status=${PIPESTATUS[0]}
rm -rf "$work"
exit "$status"
