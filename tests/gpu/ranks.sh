#!/usr/bin/env bash
# torchrun on all GPUs of a host (two or more): DDP and FSDP2 over NCCL, a recording for each rank, attributed memory, two_devices.
#   tests/gpu/ranks.sh CARRY OUT [--gpus N] [PART…]     PARTs and CARRY: tests/gpu/ranks.py, tests/gpu/all.sh
# NVLink multicast stays off, in whatever is started from here.
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
exec "$(dirname "$0")/checks.sh" ranks 400 "$@"
