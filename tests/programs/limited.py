"""Writes until the file size limit stops it; the default action of SIGXFSZ is death.

    limited.py BYTES
"""

import resource
import signal
import sys
import time

import torch

signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
if sys.argv[1] != "0":
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
torch.empty(1, device="cuda")
time.sleep(2.5)  # so that this much is written
end = time.monotonic() + 3.0
made = 0
while time.monotonic() < end:
    torch.empty(512 * (1 + made % 977), device="cuda", dtype=torch.uint8)
    made += 1
print("survived", made > 1000)
