#!/usr/bin/env bash
# Five variants of a training step, three runs each, recorded and given to `strandline diff`: is the best one first, is each effect as
# large as PyTorch's own peaks say, and is the patch without effect called so? A minute and a half on an H100.
#   tests/gpu/diff_ranks.sh CARRY OUT [--simulated]      CARRY: tests/gpu/carry.sh; PYTHON: another than python3
exec "$(dirname "$0")/checks.sh" diff_ranks 170 "$@"
