"""A server-like job without backward and optimizer: its steps are NVTX ranges, some within others, some ended by number.

    nvtx.py [SECONDS]      a pause after each, and an end without goodbye, as servers have it
"""

import os
import sys
import time

import torch

kept = []
pause = float(sys.argv[1]) if sys.argv[1:] else 0.0


def serve(n):
    torch.cuda.nvtx.range_push("inner")
    y = torch.zeros(1 << 20, device="cuda", dtype=torch.uint8)
    kept.append(torch.zeros(8 << 20, device="cuda", dtype=torch.uint8))  # LEAK
    torch.cuda.nvtx.range_pop()
    time.sleep(pause)
    return y


torch.cuda.nvtx.range_push("whole")
for n in range(10):
    torch.cuda.nvtx.range_push("request")
    serve(n)
    torch.cuda.nvtx.range_pop()
torch.cuda.nvtx.range_pop()
for n in range(10):
    number = torch.cuda.nvtx.range_start("request")
    serve(n)
    torch.cuda.nvtx.range_end(number)
print(len(kept), flush=True)
if pause:
    os._exit(0)
