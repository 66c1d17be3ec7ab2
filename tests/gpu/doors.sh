#!/usr/bin/env bash
# Every door on one card: verdicts through the pluggable allocator with and without preload, cudaMallocAsync, no cache, expandable
# segments, strandline.start(), memory that is attributed, and leakbench through the doors. About three minutes.
#   tests/gpu/doors.sh CARRY OUT [PART…]     PARTs and CARRY: tests/gpu/doors.py, tests/gpu/all.sh
exec "$(dirname "$0")/checks.sh" doors 235 "$@"
