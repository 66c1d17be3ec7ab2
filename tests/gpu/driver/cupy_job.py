"""CuPy: cupy_job.py leak|clean pool|none SECONDS. `pool` is CuPy's default, with `none` CUDA is asked for each array."""

import sys
import time

import cupy

leaks, pool, seconds = sys.argv[1] == "leak", sys.argv[2] == "pool", float(sys.argv[3])
if not pool:
    cupy.cuda.set_allocator(None)
kept = []


def batch(i):
    x = cupy.full((1024, 1024), i % 7, dtype=cupy.float32)
    y = x @ x
    loss = y.sum()
    if leaks:
        kept.append(cupy.concatenate([x, y]))  # LEAK
    return float(loss)


weights = cupy.ones((4096, 4096), dtype=cupy.float32)
end, i, total = time.monotonic() + seconds, 0, 0.0
while time.monotonic() < end:
    total = batch(3)
    i += 1
    time.sleep(0.1)
print("done", total, float(weights[0, 0]))
