#!/usr/bin/env bash
# The peak of one of the zoo's jobs (tests/world/jobs/zoo.py), TIMES times bare and recorded in turn: whether it varies by itself.
#   [BARE_ONLY=1] tests/gpu/peaks.sh CARRY OUT JOB [TIMES] [STATEMENT]     CARRY: strandline (the command); STATEMENT: Python to run before the job
# Prints how many runs had which peak, count of allocations and reserved peak (bytes), and keeps it in OUT/peaks-JOB.txt.
set -u
cd "$(dirname "$0")/../.."
carry=$(realpath "$1"); mkdir -p "$2"; out=$(realpath "$2"); job=$3; times=${4:-10}; before=${5:-pass}
py=${PYTHON:-python3}
work=$(mktemp -d); chmod +x "$carry/strandline"
export PYTHONPATH="$PWD/tests/world/jobs" XDG_CACHE_HOME="$work/cache" NCCL_NVLS_ENABLE=0
program="
import runpy, sys, torch
$before
sys.argv = ['zoo.py', '$job']
try: runpy.run_path('tests/world/jobs/zoo.py', run_name='__main__')
except SystemExit: pass
s = torch.cuda.memory_stats()
print('PEAK', s['allocated_bytes.all.peak'], s['allocation.all.allocated'], s['reserved_bytes.all.peak'])
"
for ((n = 0; n < times; n++)); do
  "$py" -c "$program" 2> "$work/stderr" | sed -n "s/^PEAK/bare/p"
  [ -n "${BARE_ONLY:-}" ] || "$carry/strandline" run --quiet -o "$work/rec$n" -- "$py" -c "$program" 2> "$work/stderr" | sed -n "s/^PEAK/recorded/p"
done | sort | uniq -c | tee "$out/peaks-$job.txt"
[ -s "$out/peaks-$job.txt" ] || cat "$work/stderr"
rm -rf "$work"
