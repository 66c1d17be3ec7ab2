#!/usr/bin/env bash
# What recording adds on this machine, beside torch's own history: tests/bench/overhead.py with all its works.
#   [ROUNDS=20] [LARGE_ROUNDS=20] tests/gpu/bench.sh LIBSTRANDLINE STRANDLINE PYTHON DIR
set -eu
cd "$(dirname "$0")/../.."
lib=$1 command=$2 py=$3 dir=$4; mkdir -p "$dir"
"$py" tests/bench/overhead.py --library "$lib" --command "$command" --rounds "${ROUNDS:-20}" --only pair,heavy --out "$dir/overhead.json"
"$py" tests/bench/overhead.py --library "$lib" --command "$command" --rounds "${LARGE_ROUNDS:-20}" --only large --steps 20 --out "$dir/large.json"
