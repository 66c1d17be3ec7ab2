#!/usr/bin/env bash
# What fills a real card, against what models and the driver count; and what jobs die of that run out of it. A line
# for each, PASS or FAIL. About two minutes alone on a card; after 390 seconds whatever still runs is ended, and said.
#   tests/gpu/anatomy.sh CARRY OUT [MODEL…]      CARRY as in all.sh; needs python3 with torch and transformers; results go to OUT
set -u
cd "$(dirname "$0")/../.."
carry=$(realpath "$1"); mkdir -p "$2"; out=$(realpath "$2"); shift 2
models=${*:-gpt2 llama vit bert qwen2 gemma neox t5 electra deit gpt2+muon gpt2-xl llama-1b}
work=$(mktemp -d)
py=$(command -v "${PYTHON:-python3}")
strandline="$carry/strandline"
chmod +x "$strandline"
export XDG_CACHE_HOME="$work/cache" PYTHONUNBUFFERED=1 TURN="$work/turn"
: > "$TURN"
# Seconds that a job may still take: the verdicts need the rest.
left() { echo $((SECONDS < 360 ? 370 - SECONDS : 10)); }
# Some import while others train; the lock on TURN gives each of them the card for itself.
job() { # NAME SCRIPT ARGUMENT
  timeout "$(left)" "$strandline" run --quiet -o "$work/$1" -- "$py" "$2" "$3" > "$work/$1.out" 2> "$work/$1.err"
  echo $? > "$work/$1.status"
}
some() { while [ "$(jobs -rp | wc -l)" -ge 5 ]; do wait -n; done; }
for m in $models; do some; job "$m" tests/python/anatomy.py "$m" & done
for c in batch fragments state; do some; job "oom-$c" tests/python/oom.py "$c" & done
wait
# Its other process may outlive it by a moment: last.
job oom-other tests/python/oom.py other
# shellcheck disable=SC2086
"$py" tests/gpu/anatomy.py "$strandline" "$work" $models 2>&1 | tee "$out/anatomy.txt"
result=${PIPESTATUS[0]}
tail -n 4 "$work"/*.err > "$out/anatomy-stderr.txt"
rm -rf "$work"
exit "$result"
