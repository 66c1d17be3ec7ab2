"""Runs jobs, each in a child of its own that is forked before CUDA is called: PyTorch is imported once for all of them.

    forked.py SCRIPT CASE [SCRIPT CASE…]     each as `python SCRIPT CASE` would, recorded into CASE.strand; two at a time

A child is `__main__`, and ends as any interpreter does. Exits with 1 as soon as one has not ended with 0.
"""

import os
import sys
import types

import torch
import torch._dynamo  # What the first optimizer imports.


def main_module(path):
    """A `__main__` of the script's own, with nothing of ours in it."""
    main = types.ModuleType("__main__")
    main.__file__ = path
    sys.modules["__main__"] = main
    return main.__dict__


def wait(running):
    child, status = os.wait()
    case = running.pop(child)
    if status:
        sys.exit(f"{case} ended with {os.waitstatus_to_exitcode(status)}")


running = {}
for script, case in zip(sys.argv[1::2], sys.argv[2::2]):
    if len(running) == 2:
        wait(running)
    if child := os.fork():
        running[child] = case
        continue
    assert not torch.cuda.is_initialized()
    os.environ["STRANDLINE_OUT"] = os.path.join(os.environ["STRANDLINE_OUT"], f"{case}.strand")
    sys.argv = [script, case]
    with open(script) as file:
        code = compile(file.read(), script, "exec")
    exec(code, main_module(script))
    sys.exit()
while running:
    wait(running)
os._exit(0)  # No job: it need not take PyTorch apart.
