#!/usr/bin/env bash
# torch.compile on one card: inductor in its default mode and with CUDA graphs (reduce-overhead), recorded and bare twins, leaks and healthy
# runs, workers that compile. About three minutes, most of it compiling; without a C compiler inductor is skipped, and said.
#   tests/gpu/compile.sh CARRY OUT [PART…]     PARTs and CARRY: tests/gpu/compile.py, tests/gpu/all.sh; PYTHON: another than python3
set -u
cd "$(dirname "$0")/../.."
carry=$1; out=$2; shift 2
py=${PYTHON:-python3}
mkdir -p "$out"; chmod +x "$carry/strandline"
work=$(mktemp -d)
export XDG_CACHE_HOME="$work/cache" PYTHONDONTWRITEBYTECODE=1
timeout "${LIMIT:-420}" "$py" -u tests/gpu/compile.py "$carry" "$work/compile" --python "$(command -v "$py")" "$@" 2>&1 | tee "$out/compile.txt"
status=${PIPESTATUS[0]}
tar -C "$work" -czf "$out/compile-texts.tgz" --exclude '*.strand' --exclude '*.tail' --exclude inductor --exclude triton compile
rm -rf "$work"
exit "$status"
