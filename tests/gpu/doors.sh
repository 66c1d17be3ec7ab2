#!/usr/bin/env bash
# Every door on one card: verdicts through the pluggable allocator with and without preload, cudaMallocAsync, no cache, expandable
# segments, strandline.start(), memory that is attributed, and leakbench through the doors. About three minutes.
#   tests/gpu/doors.sh CARRY OUT [PART…]     PARTs and CARRY: tests/gpu/doors.py, tests/gpu/all.sh
set -u
cd "$(dirname "$0")/../.."
carry=$1; out=$2; shift 2
py=${PYTHON:-python3}
mkdir -p "$out"; chmod +x "$carry/strandline"
work=$(mktemp -d)
export XDG_CACHE_HOME="$work/cache" PYTHONDONTWRITEBYTECODE=1
timeout "${LIMIT:-235}" "$py" -u tests/gpu/doors.py "$carry" "$work/doors" --python "$(command -v "$py")" "$@" 2>&1 | tee "$out/doors.txt"
status=${PIPESTATUS[0]}
tar -C "$work" -czf "$out/doors-texts.tgz" --exclude '*.strand' --exclude '*.tail' doors
rm -rf "$work"
exit "$status"
