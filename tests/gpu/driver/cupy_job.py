"""CuPy: cupy_job.py leak|clean pool|none|start SECONDS. `pool` is CuPy's default, with `none` CUDA is asked for each array, with
`start` strandline is asked to see into the pool."""

import os
import sys
import time

import cupy

leaks, seconds = sys.argv[1] == "leak", float(sys.argv[3])
if sys.argv[2] == "none":
    cupy.cuda.set_allocator(None)
if sys.argv[2] == "start" and "STRANDLINE_OUT" in os.environ:
    import strandline

    strandline.start()
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
