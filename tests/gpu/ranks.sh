#!/usr/bin/env bash
# torchrun on all GPUs of a host (two or more): DDP and FSDP2 over NCCL, a recording for each rank, attributed memory, two_devices.
#   tests/gpu/ranks.sh CARRY OUT [--gpus N] [PART…]     PARTs and CARRY: tests/gpu/ranks.py, tests/gpu/all.sh
set -u
cd "$(dirname "$0")/../.."
carry=$1; out=$2; shift 2
py=${PYTHON:-python3}
mkdir -p "$out"; chmod +x "$carry/strandline"
work=$(mktemp -d)
# NVLink multicast stays off, in whatever is started from here.
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
export XDG_CACHE_HOME="$work/cache" PYTHONDONTWRITEBYTECODE=1
timeout "${LIMIT:-400}" "$py" -u tests/gpu/ranks.py "$carry" "$work/ranks" --python "$(command -v "$py")" "$@" 2>&1 | tee "$out/ranks.txt"
status=${PIPESTATUS[0]}
tar -C "$work" -czf "$out/ranks-texts.tgz" --exclude '*.strand' --exclude '*.tail' ranks
rm -rf "$work"
exit "$status"
