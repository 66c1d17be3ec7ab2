#!/usr/bin/env bash
# torch.compile on one card: inductor in its default mode and with CUDA graphs (reduce-overhead), recorded and bare twins, leaks and healthy
# runs, workers that compile. About three minutes, most of it compiling; without a C compiler inductor is skipped, and said.
#   tests/gpu/compile.sh CARRY OUT [PART…]     PARTs and CARRY: tests/gpu/compile.py, tests/gpu/all.sh
exec "$(dirname "$0")/checks.sh" compile 420 "$@"
