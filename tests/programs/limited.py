"""Writes until the file size limit stops it; the default action of SIGXFSZ is death.

    limited.py BYTES
"""

import glob
import os
import resource
import signal
import sys
import time

import torch

signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
if sys.argv[1] != "0":
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
torch.empty(1, device="cuda")


def written():
    return sum(os.path.getsize(name) for name in glob.glob("**/*.strand", recursive=True))


# So that this block is written before the limit is met: its page comes after the header's.
began, header = time.monotonic(), written()
while time.monotonic() < began + 2.5 or written() <= header and time.monotonic() < began + 120:
    time.sleep(0.1)
    header = header or written()
end = time.monotonic() + 3.0
made = 0
while time.monotonic() < end or made <= 1000:
    torch.empty(512 * (1 + made % 977), device="cuda", dtype=torch.uint8)
    made += 1
print("survived", made > 1000)
