#!/usr/bin/env bash
# What compile.sh, doors.sh and ranks.sh do: tests/gpu/NAME.py in folders of its own, for SECONDS at most (or LIMIT); what it prints goes to
# OUT/NAME.txt, too, and what its runs said to OUT/NAME-texts.tgz.
#   tests/gpu/checks.sh NAME SECONDS CARRY OUT [ARGUMENT…]     CARRY: tests/gpu/all.sh; PYTHON: another than python3
set -u
cd "$(dirname "$0")/../.."
name=$1; seconds=$2; carry=$3; out=$4; shift 4
py=${PYTHON:-python3}
mkdir -p "$out"; chmod +x "$carry/strandline"
work=$(mktemp -d)
export XDG_CACHE_HOME="$work/cache" PYTHONDONTWRITEBYTECODE=1
timeout "${LIMIT:-$seconds}" "$py" -u "tests/gpu/$name.py" "$carry" "$work/$name" --python "$(command -v "$py")" "$@" 2>&1 | tee "$out/$name.txt"
status=${PIPESTATUS[0]}
[ ! -d "$work/$name" ] || tar -C "$work" -czf "$out/$name-texts.tgz" --exclude '*.strand' --exclude '*.tail' --exclude inductor --exclude triton "$name"
rm -rf "$work"
exit "$status"
