"""Uses the C interface."""

import ctypes

import torch

strandline = ctypes.CDLL(None)
strandline.strandline_version.restype = ctypes.c_char_p
strandline.strandline_step.argtypes = [ctypes.c_uint64]
print("before", strandline.strandline_step(0), strandline.strandline_snapshot(b"x.pickle"))
torch.empty(1, device="cuda")
for n in range(1, 4):
    strandline.strandline_phase(b"forward")
    torch.empty(1000, device="cuda")
    print("step", strandline.strandline_step(n))
strandline.strandline_mark("größe".encode())
print("after", strandline.strandline_snapshot(b"x.pickle"), strandline.strandline_mark(None))
print(strandline.strandline_version().decode())
