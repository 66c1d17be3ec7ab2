"""Several threads initialize CUDA at once, and PyTorch has a lock for that which they take with the GIL."""

import sys
import threading

import torch

sys.setswitchinterval(1e-5)
go = threading.Event()


def initialize():
    go.wait()
    for _ in range(500):
        torch._C._cuda_init()


threads = [threading.Thread(target=initialize) for _ in range(3)]
for thread in threads:
    thread.start()
go.set()
torch.cuda.init()
for thread in threads:
    thread.join()
print("initialized", torch.cuda.is_initialized())
