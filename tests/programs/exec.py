"""Allocates, then becomes another program that allocates: two recordings."""

import os
import sys

import torch

torch.empty(1000, device="cuda")
if len(sys.argv) == 1:
    os.execv(sys.executable, [sys.executable, __file__, "again"])
print("ran again")
