"""A training job that leaks, full of names that are nobody's business: each has `zebra` in it."""

import ctypes
import sys
import threading

import torch

assert any("zebra" in word for word in sys.argv[1:])
threading.current_thread().name = "zebrathread"
mark = ctypes.CDLL(None).strandline_mark


class ZebraFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return zebra_held(grad) * 2


kept = []


def zebra_held(grad):
    kept.append(torch.zeros(16 << 20, device="cuda"))
    return grad


exec(compile("def zebra_made():\n    kept.append(torch.zeros(16 << 20, device='cuda'))", "<zebra code>", "exec"))
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 64)).to("cuda")
optimizer = torch.optim.AdamW(model.parameters())
for step in range(40):
    optimizer.zero_grad()
    mark(b"zebra mark")
    ZebraFunction.apply(model(torch.randn(16, 64, device="cuda"))).square().mean().backward()
    optimizer.step()
    zebra_made()
