#!/usr/bin/env bash
# Coverage-guided fuzzing of all targets at once, from the seeds and the kept corpus: tests/fuzz/all.sh BINARIES SEEDS OUT [SECONDS] [PROCESSES]
# BINARIES: the folder of the targets as built by the command in tests/fuzz/Cargo.toml. SEEDS: what FUZZ_CORPUS=SEEDS cargo test --test fuzz seeds -- --ignored wrote.
# OUT gets one TARGET-N.txt for each process, and the input of each fault. Prints inputs and seconds by target; exit status 1 where one found a fault.
set -u
here=$(cd "$(dirname "$0")" && pwd)
binaries=$(realpath "$1"); seeds=$(realpath "$2"); out=$(realpath -m "$3"); seconds=${4:-600}; processes=${5:-12}
targets=(recordings pages checkpoints tails messages pickles)
mkdir -p "$out"
for ((n = 0; n < processes; n++)); do
  t=${targets[n % ${#targets[@]}]}
  mkdir -p "$out/found-$t"
  # libFuzzer writes new inputs into the first folder; processes of one target share it, and -reload takes over what the others find.
  kept=(); [ ! -d "$here/corpus/$t" ] || kept=("$here/corpus/$t")
  "$binaries/$t" "$out/found-$t" "$seeds/$t" ${kept[@]+"${kept[@]}"} -max_total_time="$seconds" -timeout=60 -rss_limit_mb=2048 -reload=1 -print_final_stats=1 \
    -artifact_prefix="$out/$t-" > "$out/$t-$n.txt" 2>&1 &
done
wait
bad=0
for t in "${targets[@]}"; do
  inputs=$(cat "$out/$t"-[0-9]*.txt 2> /dev/null | awk '/stat::number_of_executed_units/ { n += $2 } END { print n + 0 }')
  faults=$(ls "$out" | grep -cE "^$t-(crash|timeout|oom|leak)-")
  echo "$t: $inputs inputs, $faults faults"
  [ "$faults" = 0 ] || bad=1
done
exit $bad
