#!/usr/bin/env bash
# Ten models on a card, against what `strandline predict`, `fit` and `advise` say: the figures, for tests/gpu/predict_table.py.
#   tests/gpu/predict.sh CARRY OUT [bare] [fit] [advice] [nocudnn]     no name: all; about eight, five, one and two minutes alone on a card with 16 cores
# MODELS names those that are to run, without it all; nocudnn: what deviates because of cuDNN deviates no more without it.
# CARRY: strandline (the command), simulated.json (tests/gpu/predict_simulated.py), wheels/peft-*.whl for a machine without peft, and for `fit`
# without `bare` the card.jsonl of that. OUT/card.jsonl gets a line for each run as it ends. After SECONDS_IN_ALL (480) no run is begun or goes on.
set -u
cd "$(dirname "$0")/../.."
carry=$(realpath "$1"); mkdir -p "$2"; out=$(realpath "$2"); shift 2
py=$(command -v "${PYTHON:-python3}")
work=$(mktemp -d)
chmod +x "$carry/strandline"
export XDG_CACHE_HOME="$work/cache" PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1 OMP_NUM_THREADS=2 TOKENIZERS_PARALLELISM=false
if ! "$py" -c 'from importlib.metadata import version; version("peft")' 2> /dev/null; then
  for w in "$carry"/wheels/peft-*.whl; do "$py" -m zipfile -e "$w" "$work/site"; done
  export PYTHONPATH="$work/site"
fi
"$py" tests/gpu/predict_card.py "$carry" "$out" "$work" "$@" 2>&1 | tee "$out/predict.txt"
status=${PIPESTATUS[0]}
rm -rf "$work"
exit "$status"
