#!/usr/bin/env bash
# PyTorch's own tests, bare and recorded with --stacks none, python and both: the same tests must pass, fail and be skipped.
#   [ONLY=EXPRESSION] tests/gpu/pytorch_tests.sh CARRY OUT [PART…]
# CARRY: strandline (the command), pytorch-test and wheels/expecttest-*.whl (tests/gpu/pytorch_fetch.sh). PARTs: tests/gpu/pytorch_tests.py.
# Tests that fail bare (they may be of another version than this torch) are listed as such in OUT/pytorch_tests.txt.
set -u
cd "$(dirname "$0")/../.."
carry=$1; out=$2; shift 2
mkdir -p "$out"; chmod +x "$carry/strandline"
work=$(mktemp -d)
XDG_CACHE_HOME="$work/cache" timeout "${LIMIT:-580}" "${PYTHON:-python3}" -u tests/gpu/pytorch_tests.py "$carry" "$work" --only "${ONLY:-}" "$@" 2>&1 | tee "$out/pytorch_tests.txt"
status=${PIPESTATUS[0]}
cp "$work"/outcomes.json "$out/pytorch_outcomes.json" 2> /dev/null
tar -C "$work" -czf "$out/pytorch_tests-texts.tgz" --exclude '*.strand' --exclude 'recording*' --exclude cache --exclude ./site . 2> /dev/null
rm -rf "$work"
exit "$status"
