"""A job that leaks 8 MiB a step for 60 steps, and then waits for somebody to do something about it.

    alert.py [--term | --both] WAIT...    waits until each of the files is there. --term: says so when it is asked to end, and
                                          goes on; --both: there are two of this job, and it waits for the other one too
"""

import glob
import os
import signal
import sys
import time

import torch

got, waits = [], sys.argv[1:]
reading, writing = os.pipe()
os.set_inheritable(writing, True)


def note(number, frame):
    got.append(signal.Signals(number).name)
    with open(f"got-{got[-1]}", "w"):
        pass


signal.signal(signal.SIGUSR1, note)
if waits[0] == "--term":
    signal.signal(signal.SIGTERM, note)
    waits = waits[1:]
two = waits[0] == "--both"
waits = waits[1:] if two else waits
model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters())
kept = []
for step in range(60):
    optimizer.zero_grad()
    model(torch.randn(16, 64, device="cuda")).square().mean().backward()
    optimizer.step()
    kept.append(torch.zeros(2 << 20, device="cuda"))
print("waiting", flush=True)
with open(f"waiting-{os.getpid()}", "w"):
    pass
deadline = time.monotonic() + 300
while not all(glob.glob(name) for name in waits) or two and len(glob.glob("waiting-*")) < 2:
    if time.monotonic() > deadline:
        sys.exit(f"nobody made {waits}")
    time.sleep(0.05)
# Whoever watches is no child of ours, and holds nothing of ours open.
try:
    sys.exit(f"a child that is not ours: {os.wait()}")
except ChildProcessError:
    pass
os.close(writing)
assert os.read(reading, 1) == b""
# One write: where two ranks share a pipe and nothing buffers, the pieces of a `print` mix.
sys.stdout.write(f"done {sorted(set(got))}\n")
