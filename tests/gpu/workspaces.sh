#!/usr/bin/env bash
# What cuDNN takes for convolutions on this card, and the peaks of the models of tests/gpu/models.py that have any: for tools/simcuda's table.
#   tests/gpu/workspaces.sh OUT [SECONDS]
set -u
cd "$(dirname "$0")/../.."
mkdir -p "$1"; out=$(realpath "$1"); seconds=${2:-120}
for name in gan diffusion cnn; do
  python3 tests/gpu/models.py $name | tee -a "$out/models.jsonl"
  PYTORCH_ALLOC_CONF=expandable_segments:True python3 tests/gpu/models.py $name | tee -a "$out/models.jsonl"
done
for seed in $(seq 0 11); do python3 tests/gpu/workspaces.py "$out/heuristic-$seed.jsonl" "$seed" "$seconds" & done
for seed in 12 13; do python3 tests/gpu/workspaces.py "$out/benchmark-$seed.jsonl" "$seed" "$seconds" --benchmark & done
wait
wc -l "$out"/*.jsonl
