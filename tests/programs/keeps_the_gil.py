"""Whether another thread runs while PyTorch initializes CUDA in one call, which keeps the GIL and holds a lock meanwhile.

No instruction of Python lies between the call and what is done before and after it, so that only the call itself could let another thread run.
"""

import functools
import sys
import threading

import torch

sys.setswitchinterval(1e-5)
inside, seen, stop = [], [], []


def look():
    while not stop:
        if inside:
            seen.append(1)


thread = threading.Thread(target=look)
thread.start()
calls = [functools.partial(inside.append, 1), functools.partial(torch._C._cuda_init), functools.partial(inside.clear)]
list(map(functools.partial.__call__, calls))
stop.append(1)
thread.join()
torch.empty(1, device="cuda")
print("another thread ran inside:", bool(seen))
