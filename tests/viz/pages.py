"""Jobs whose pages are looked at: tests/viz/pages.sh runs them.

    pages.py clean|growing|large STEPS     `large`: 30,000 events a step
    pages.py arrays SECONDS                arrays without PyTorch, from a library that is named as JAX's (PLUGIN), as with XLA_PYTHON_CLIENT_ALLOCATOR=platform
"""

import ctypes
import os
import sys
import time

what, count = sys.argv[1], int(sys.argv[2])
kept = []


class Array:
    def __init__(self, size):
        self.at = plugin.xla_allocate(size)

    def __del__(self):
        plugin.xla_deallocate(self.at)


def arrays(weights):
    gradients = [Array(4 << 20) for _ in weights]
    weights[:] = [Array(4 << 20) for _ in gradients]
    kept.append(Array(1 << 20))


def makers():
    """Functions of 60 files, each with two lines that allocate."""
    for i in range(60):
        source = f"def make_{i}(n):\n    x = empty(n, device='cuda')\n    y = empty(n + {i}, device='cuda')\n    return x, y\n"
        scope = {"empty": torch.empty}
        exec(compile(source, f"/srv/train/data/part_{i}.py", "exec"), scope)
        yield scope[f"make_{i}"]


def train_step(batch):
    output = model(batch)
    if what == "growing":
        kept.append(output)
    loss = output.square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


if what == "arrays":
    plugin = ctypes.CDLL(os.environ["PLUGIN"])
    plugin.xla_allocate.restype = ctypes.c_void_p
    plugin.xla_allocate.argtypes, plugin.xla_deallocate.argtypes = [ctypes.c_size_t], [ctypes.c_void_p]
    held, ends = [Array(4 << 20) for _ in range(8)], time.monotonic() + count
    while time.monotonic() < ends:
        arrays(held)
        time.sleep(0.1)
    sys.exit()

import torch

width = 128 if what == "large" else 256
layer = torch.nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True)
model = torch.nn.TransformerEncoder(layer, 2 if what == "large" else 6, enable_nested_tensor=False).cuda()
optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
small = list(makers()) if what == "large" else []
for step in range(count):
    for n in range(83):
        for make in small:
            make(128 * (1 + n % 31))
    if small:
        kept.append(torch.empty(1 << 18, device="cuda"))
    train_step(torch.randn(8 + step * 7 % 5, 64, width, device="cuda"))
