"""A recorded process forks many times, and each child loads a library that it has not loaded yet, as the workers of a DataLoader do."""

import ctypes
import glob
import os
import signal
import sys
import time

import torch

FORKS = int(sys.argv[1])
# Any library that is not loaded yet.
loaded = {line.split()[-1] for line in open("/proc/self/maps") if line.rstrip().endswith(".so")}
folder = os.path.join(os.path.dirname(os.__file__), "lib-dynload")
library = next(p for p in sorted(glob.glob(folder + "/*.so")) if p not in loaded)

torch.zeros(8, device="cuda")
hung = 0
for _ in range(FORKS):
    child = os.fork()
    if child == 0:
        ctypes.CDLL(library)
        os._exit(0)
    deadline = time.monotonic() + 20
    pause = 0.0002
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        if time.monotonic() > deadline:
            hung += 1
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            break
        time.sleep(pause)
        pause = min(pause * 2, 0.1)
print("children that hung:", hung, flush=True)
