"""A CuPy program without PyTorch, whose pool's blocks strandline.start() shows: cupy_pool.py [leak]. Steps are told by hand."""

import json
import sys
import threading

import cupy

import strandline

leak = "leak" in sys.argv[1:]
said = {"path": strandline.start(), "again": strandline.start()}
kept, weights = [], cupy.empty(8 << 20)


def another(work):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def batch():
    x, y = cupy.empty(3 << 20), cupy.empty(5 << 20)
    if leak:
        kept.append(cupy.empty(8 << 20))  # LEAK
    return x


passed = []
for step in range(1, 25):
    passed.append(batch())
    another(passed.clear)  # what one thread was given another one frees
    strandline.step(step)
said["hooks"] = list(cupy.cuda.memory_hook.get_memory_hooks())
print(json.dumps(said))
