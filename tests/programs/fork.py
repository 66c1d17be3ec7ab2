"""Forked children, before and after CUDA: none of them leaves a trace in a recording, or a recording.

    fork.py before|after
"""

import ctypes
import os
import sys


def child():
    pid = os.fork()
    if pid:
        _, status = os.waitpid(pid, 0)
        return os.waitstatus_to_exitcode(status)
    try:
        import torch

        if sys.argv[1] == "before":
            keep = [torch.empty(1 << 20, device="cuda") for _ in range(10)]
            assert torch.cuda.memory_allocated() == 10 << 22, keep
        else:
            # torch refuses; the runtime does not.
            cudart = ctypes.CDLL(None)
            p = ctypes.c_void_p()
            for _ in range(100):
                cudart.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(12345))
                cudart.cudaFree(p)
        os._exit(0)
    except BaseException as e:
        print("child:", e)
        os._exit(1)


if sys.argv[1] == "before":
    print("child", child())
import torch

kept = [torch.empty(1 << 20, device="cuda") for _ in range(5)]
if sys.argv[1] == "after":
    print("child", child())
kept += [torch.empty(1 << 20, device="cuda") for _ in range(5)]
print("allocated", torch.cuda.memory_allocated())
