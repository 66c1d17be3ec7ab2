"""Trains on the device and says what it has computed and kept: the same whatever else is in the process.

    job.py [leak] [wait] [driver] [workers] [day] [back]

leak: every loss is kept with its graph. wait: until the file `answered` is there. driver: memory is asked of the driver as well.
workers: the batches come from eight worker processes. day: the clock is a day ahead. back: in the middle the clock is set back by an hour (libfaketime's file).
"""

import ctypes
import glob
import os
import sys
import time

import torch

WORDS = sys.argv[1:]
STEPS = 40
KEPT = []


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return STEPS * 2

    def __getitem__(self, i):
        return torch.full((1 << 15,), float(i))  # 128 KiB: 32 MiB of batches wait in eight ranks at most


def driver():
    found = [p for path in sys.path for p in glob.glob(os.path.join(path, "nvidia", "*", "lib", "libcuda.so.1"))]
    cuda, block, said = ctypes.CDLL((found or ["libcuda.so.1"])[0]), ctypes.c_uint64(), []
    for _ in range(10):
        said += [cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(1 << 20)), cuda.cuMemFree_v2(block)]
    print("driver", said.count(0), flush=True)


def set_back():
    before = time.time()
    with open(os.environ["FAKETIME_TIMESTAMP_FILE"], "w") as f:
        f.write("+23h")
    print("the clock goes back", time.time() < before - 3000, flush=True)


def main():
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(4)]).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    batches = iter(torch.utils.data.DataLoader(Data(), 2, num_workers=8)) if "workers" in WORDS else None
    for step in range(STEPS):
        if step == STEPS // 2 and "back" in WORDS:
            set_back()
        x = next(batches).cuda()[:, :256] if batches else torch.randn(64, 256, device="cuda")
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if "leak" in WORDS:
            KEPT.append(model(x).mean())
    if "driver" in WORDS:
        driver()
    print("allocated", torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated(), flush=True)
    if "day" in WORDS:
        print("tomorrow", time.time() - os.stat("/proc/self/fd").st_mtime > 80000, flush=True)
    until = time.monotonic() + 15
    while "wait" in WORDS and not os.path.exists("answered") and time.monotonic() < until:
        time.sleep(0.02)
    print("kept", len(KEPT), flush=True)


main()
