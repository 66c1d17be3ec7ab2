"""Calls functions of strange.c, each NAME:NUMBER, one after the other; with "early" before anything else has called CUDA."""

import ctypes
import sys

import torch

library, when, *calls = sys.argv[1:]
library = ctypes.CDLL(library)
if when != "early":
    torch.cuda.init()
    keep = torch.empty(1 << 20, device="cuda")
for call in calls:
    name, number = call.split(":")
    print(name, flush=True)
    getattr(library, name)(ctypes.c_long(int(number)))
x = torch.empty(1 << 20, device="cuda")
del x
print("alive", flush=True)
