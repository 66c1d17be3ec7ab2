#!/usr/bin/env bash
# TRL's leak (a_offload_vl) on a card limited to what the job needs at its 25th step, through torch's own memory fraction: is it
# told by step 7, does the job die where the forecast said, did the actions run, does the bundle open? Two minutes.
#   tests/gpu/limited.sh CARRY OUT        CARRY: strandline (the command), wheels/trl-*.whl; PYTHON: another than python3
set -u
cd "$(dirname "$0")/../.."
mkdir -p "$2"
work=$(mktemp -d)
chmod +x "$1/strandline"
XDG_CACHE_HOME="$work/cache" PYTHONUNBUFFERED=1 timeout "${LIMIT:-145}" "${PYTHON:-python3}" tests/gpu/limited.py \
  --strandline "$(realpath "$1")/strandline" --wheels "$(realpath "$1")/wheels" --work "$work" 2>&1 | tee "$2/limited.txt"
status=${PIPESTATUS[0]}
cp "$work"/*/said.txt "$2/" 2>/dev/null
rm -rf "$work"
exit "$status"
