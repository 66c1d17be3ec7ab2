"""A job of somebody who means harm: its names are meant for the terminal, the page and the log of whoever reads about it, and it asks
for a snapshot where it has no business.

    hostile.py VICTIM WAIT... -- [--token=SECRET --api-key SECRET KEY=SECRET …]
"""

import ctypes
import os
import sys
import threading
import time
import types

import torch

ESC = "\x1b]0;PWNED\x07\x1b[31mRED\x1b[2J"
NAMES = [
    "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "</script><script>alert(3)</script>", ESC, "a\u2028b\u2029c",
    "\u202egnp.exe", "\u2066isolated\u2069", "zero\u200bwidth\ufeff", "\n  LEAK 9  forged line", "tab\there", "x" * 5000, "%s%n",
    "\x9b31mC1", "\x85next", "del\x7f", "\ud800lone", 'quote"back\\slash',
    "';alert(2)//", "{{7*7}}",
]
victim, waits = sys.argv[1], sys.argv[2 : sys.argv.index("--")]
threading.current_thread().name = ESC
lib = ctypes.CDLL(None)
functions, keep = [], []
for i, name in enumerate(NAMES):
    source = "def f(keep, torch):\n" + "\n" * i + f"  keep.append(torch.empty({(1 << 18) + i * 1024}, device='cuda'))\n"
    whole = compile(source, "/home/someone/" + name.encode("utf8", "replace").decode() + ".py", "exec")
    code = next(c for c in whole.co_consts if hasattr(c, "co_name"))
    code = code.replace(co_name=name, **({"co_qualname": name} if hasattr(code, "co_qualname") else {}))
    functions.append(types.FunctionType(code, globals()))
model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
lib.strandline_mark(ESC.encode() + b"<script>mark</script>\n forged")
lib.strandline_phase(b"<b>phase</b>" + ESC.encode())
folder = os.path.dirname(os.environ["STRANDLINE_OUT"]) if os.environ["STRANDLINE_OUT"].endswith(".strand") else os.environ["STRANDLINE_OUT"]
os.symlink(victim, os.path.join(folder, "alerts.jsonl"))
os.symlink(os.path.dirname(victim), os.path.join(folder, "out"))
for path in [victim, "../" + os.path.basename(victim), "out/" + os.path.basename(victim), "asked.pickle"]:
    assert lib.strandline_snapshot(path.encode()) == 0
for step in range(60):
    optimizer.zero_grad()
    model(torch.randn(8, 64, device="cuda")).sum().backward()
    optimizer.step()
    for f in functions:
        f(keep, torch)
deadline = time.monotonic() + 120
while not all(os.path.exists(name) for name in waits):
    if time.monotonic() > deadline:
        sys.exit(f"nobody made {waits}")
    time.sleep(0.05)
print("done")
