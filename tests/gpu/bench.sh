#!/usr/bin/env bash
# What recording adds on this machine, beside torch's own history: tests/bench/overhead.py with all its works. About eight minutes.
#   [ROUNDS=24] [SECONDS_EACH=170] tests/gpu/bench.sh LIBSTRANDLINE STRANDLINE PYTHON DIR
# The large model lies in five processes at once, 20 GB each.
set -eu
cd "$(dirname "$0")/../.."
lib=$1 command=$2 py=$3 dir=$4; mkdir -p "$dir"
each=${SECONDS_EACH:-170}
"$py" tests/bench/overhead.py --library "$lib" --command "$command" --rounds "${ROUNDS:-24}" --lifetime 8 --turns 4 --seconds "$each" \
  --only pair,heavy,threads --out "$dir/overhead.json"
"$py" tests/bench/overhead.py --library "$lib" --command "$command" --rounds "${ROUNDS:-24}" --lifetime 12 --turns 3 --steps 3 --seconds "$each" \
  --only large --modes "${LARGE_MODES:-nothing,torch_python,none,python,native}" --out "$dir/large.json"
