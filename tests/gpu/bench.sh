#!/usr/bin/env bash
# What recording adds on this machine, beside torch's own history, and which promises that keeps: tests/bench/overhead.py with all
# its parts, about eight minutes; its last lines say PASS, FAIL or OPEN.
#   [SECONDS_ALL=430] tests/gpu/bench.sh LIBSTRANDLINE STRANDLINE PYTHON DIR
# Up to 32 processes are alive at once; the large model lies in as many as the card has room for, 20 GB each.
set -eu
cd "$(dirname "$0")/../.."
lib=$1 command=$2 py=$3 dir=$4; mkdir -p "$dir"
"$py" tests/bench/overhead.py --library "$lib" --command "$command" --seconds "${SECONDS_ALL:-430}" \
  --parts "${PARTS:-pairs,heavy,told,threads,large}" --out "$dir/overhead.json"
