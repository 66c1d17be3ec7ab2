#!/usr/bin/env bash
# Packs what tests/gpu/world.sh needs on a machine without a network: strandline, and wheels of libraries that are not there (about 35 MiB).
#   tests/gpu/world_carry.sh CARRY [STRANDLINE]     STRANDLINE: the command to carry, stripped; without it CARRY's own is left as it is
# Needs pip, and a Python to build the wheels of the two packages that exist as source only. TARGET: the card machine's Python (3.12).
set -eu
carry=$(realpath -m "$1"); target=${TARGET:-3.12}
mkdir -p "$carry/wheels" "$carry/apart"
if [ $# -gt 1 ]; then cp "$2" "$carry/strandline"; strip "$carry/strandline"; fi
get() { # FOLDER PACKAGE…
  local to=$1; shift
  python3 -m pip download -q --no-deps --only-binary=:all: --python-version "$target" --implementation cp \
    --platform manylinux_2_34_x86_64 --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 --platform manylinux_2_24_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 \
    --platform manylinux1_x86_64 -d "$to" "$@"
}
get "$carry/wheels" trl==1.16.0 datasets==5.2.0 dill multiprocess diffusers==0.42.1 importlib_metadata stable-baselines3==2.9.2 gymnasium==1.4.0 farama-notifications \
  monai==1.6.1 kornia==0.9.0 kornia_rs segmentation-models-pytorch==0.6.0 vit-pytorch hjson pydantic==2.13.* annotated-types typing_inspection optuna==5.0.0 \
  colorlog pytorch-ignite==0.5.5 skorch==1.* pytorch-tabnet pytorch-metric-learning==2.9.0 pyro-ppl pyro-api expecttest \
  opacus==1.6.0 opt_einsum torchsde==0.2.6 trampoline higher==0.2.1 torchjd==0.18.0 quadprog qpsolvers pytorch-optimizer==4.1.0 lightly==1.6.0 lightly_utils aenum \
  vector-quantize-pytorch==1.32.0 einops einx frozendict loguru denoising-diffusion-pytorch==2.3.4 ema-pytorch pytorch-fid termcolor tensordict==0.15.3 pyvers orjson \
  cloudpickle litgpt==0.5.13 jsonargparse
core=$(unzip -p "$carry"/wheels/pydantic-2*.whl '*/METADATA' | sed -n 's/^Requires-Dist: pydantic-core==\([0-9.]*\).*/\1/Ip' | head -1)
get "$carry/wheels" "pydantic_core==$core"
DS_BUILD_OPS=0 python3 -m pip wheel -q --no-deps -w "$carry/wheels" deepspeed==0.19.8 fairscale==0.4.13
# torchtune ends with torchao's older versions, which other libraries refuse: both lie apart.
mkdir -p "$carry/apart/torchtune"
get "$carry/apart/torchtune" torchtune==0.6.1 torchdata omegaconf
python3 -m pip wheel -q --no-deps -w "$carry/apart/torchtune" antlr4-python3-runtime==4.9.3
# What a wheel has for other machines stays behind. Its RECORD still lists that; world.sh unpacks wheels, and nobody reads it.
without() { # FOLDER PACKAGE FIND-EXPRESSION…
  local to=$1 package=$2 work name; shift 2
  work=$(mktemp -d); get "$work" "$package"; name=$(basename "$work"/*.whl)
  (cd "$work" && unzip -q "$name" && rm "$name" && find . -name '*.so' "$@" -delete && zip -qr "$to/$name" .)
  rm -rf "$work"
}
without "$carry/wheels" bitsandbytes ! -name 'libbitsandbytes_cuda130.so' ! -name 'libbitsandbytes_cpu.so'
without "$carry/apart/torchtune" torchao==0.15.0
du -sh "$carry"
