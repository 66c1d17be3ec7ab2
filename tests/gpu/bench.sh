#!/usr/bin/env bash
# What recording adds on this machine, beside torch's own history, and which promises that keeps: tests/bench/overhead.py with all
# its parts, about eight minutes; its last lines say PASS, FAIL or OPEN.
#   [SECONDS_ALL=430] [PARTS=…] [BENCH_OPTIONS=…] tests/gpu/bench.sh LIBSTRANDLINE STRANDLINE PYTHON DIR
# The heavy step and what it tells alone, which takes 350 s to be known to about a hundredth:
#   SECONDS_ALL=345 PARTS=pairs,heavy,told BENCH_OPTIONS="--depths 23 --full 2 --rounds 12 --share 0.14" tests/gpu/bench.sh …
# The heavy step to half a hundredth, each process against itself, in 380 s: tests/bench/begun.py --library LIBSTRANDLINE --groups 20 --seconds 380;
# with --command STRANDLINE what recordings tell of their cost, too, and with --stacks none,both,none that of other modes.
# Up to 64 processes are alive at once; the large model lies in as many as the card has room for, 20 GB each.
set -eu
cd "$(dirname "$0")/../.."
lib=$1 command=$2 py=$3 dir=$4; mkdir -p "$dir"
"$py" tests/bench/overhead.py --library "$lib" --command "$command" --seconds "${SECONDS_ALL:-430}" \
  --parts "${PARTS:-pairs,heavy,told,threads,large}" --out "$dir/overhead.json" ${BENCH_OPTIONS:-}
