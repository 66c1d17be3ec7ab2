"""Runs scripts, each in a child that is forked from this process before CUDA is called: PyTorch is imported once for all of them.

    imported.py FOLDER      a line of JSON on stdin for each: {"argv", "env", "folder", "out", "err", "status"}

A child is `__main__`, and ends as any interpreter does. What it prints goes to the files `out` and `err`; the file `status` gets its wait
status once it has ended. A variable that is null is removed. When stdin ends, children are killed, and FOLDER is removed with all in it.
"""

import gc
import json
import os
import select
import shutil
import signal
import sys
import types

import torch
import torch._dynamo  # What the first optimizer imports.


def become(request):
    """Puts this child in the place of `python SCRIPT ARGUMENT…`. Returns the script's code and its `__main__`."""
    for child in running:
        os.close(child)
    for number, path, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, request["out"], os.O_WRONLY | os.O_CREAT),
        (2, request["err"], os.O_WRONLY | os.O_CREAT),
    ):
        file = os.open(path, flags, 0o600)
        os.dup2(file, number)
        os.close(file)
    os.chdir(request["folder"])
    for name, value in request["env"].items():
        os.environ.pop(name, None) if value is None else os.environ.__setitem__(name, value)
    sys.argv = request["argv"]
    script = sys.argv[0]
    sys.path[:1] = [os.path.dirname(script), *filter(None, (request["env"].get("PYTHONPATH") or "").split(os.pathsep))]
    main = types.ModuleType("__main__")
    main.__file__ = script
    sys.modules["__main__"] = main
    with open(script) as file:
        return compile(file.read(), script, "exec"), main.__dict__


def ended(child):
    pid, path = running.pop(child)
    os.close(child)
    with open(path + ".part", "w") as file:
        file.write(str(os.waitpid(pid, 0)[1]))
    os.rename(path + ".part", path)


gc.freeze()  # What was imported is no child's garbage: looking through it is most of what the end of a small job takes.
running, said = {}, b""
while True:
    ready, _, _ = select.select([0, *running], [], [])
    for child in [r for r in ready if r]:
        ended(child)
    if 0 not in ready:
        continue
    if not (more := os.read(0, 1 << 16)):
        break
    *lines, said = (said + more).split(b"\n")
    for line in lines:
        request = json.loads(line)
        if pid := os.fork():
            running[os.pidfd_open(pid)] = pid, request["status"]
            continue
        assert not torch.cuda.is_initialized()
        exec(*become(request))
        sys.exit()
for pid, _ in running.values():
    os.kill(pid, signal.SIGKILL)
shutil.rmtree(sys.argv[1], ignore_errors=True)
os._exit(0)  # No job: it need not take PyTorch apart.
