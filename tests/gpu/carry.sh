#!/usr/bin/env bash
# Packs what tests/gpu/*.sh need on a machine without Rust and without a network.
#   tests/gpu/carry.sh CARRY WHEELS [TEST…]     WHEELS: the folder of trl-*.whl; TEST: names of integration tests to compile in
# CARRY then holds the command, the library it embeds, TRL's wheels, and the compiled tests, all stripped.
set -eu
cd "$(dirname "$0")/../.."
carry=$(realpath -m "$1") wheels=$2; shift 2
mkdir -p "$carry/wheels" "$carry/tests"
rm -f "$carry"/tests/*
built() { cargo "$@" --message-format json-render-diagnostics | python3 -c '
import json, sys
print(next(m["executable"] for m in map(json.loads, sys.stdin) if m.get("executable")))'; }
cp "$(built build --release -p strandline-tools)" "$carry/strandline"
strip "$carry/strandline"
cp "$("$carry/strandline" doctor --library)" "$carry/libstrandline.so"
for version in 1.3.0 1.4.0 1.6.0 1.16.0; do cp "$wheels"/trl-$version-*.whl "$carry/wheels/"; done
n=0
for t in "$@"; do
  n=$((n + 1)); cp "$(built test -p strandline --no-run --test "$t")" "$carry/tests/$n-$t"; strip "$carry/tests/$n-$t"
done
du -sh "$carry" "$carry"/*
