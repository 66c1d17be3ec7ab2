"""Eight ranks of job.py with their workers, forked from one process that has imported PyTorch, and has not called CUDA. What they say comes
in their order, without our lines. Exits with 1 if one has not ended with 0."""

import gc
import os
import runpy
import sys

import torch
import torch._dynamo  # What the first optimizer imports.

RANKS = 8
JOB = os.path.join(os.path.dirname(os.path.abspath(__file__)), "job.py")
gc.freeze()  # What was imported is no rank's garbage, nor a worker's.
children = []
for rank in range(RANKS):
    if child := os.fork():
        children.append(child)
        continue
    assert not torch.cuda.is_initialized()
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS))
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{name}.{rank}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    sys.argv = [JOB, "workers"]
    runpy.run_path(JOB, run_name="__main__")
    sys.exit()
ended = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
for rank in range(RANKS):
    with open(f"out.{rank}") as out, open(f"err.{rank}") as err:
        sys.stdout.write(out.read())
        sys.stderr.writelines(line for line in err if not line.startswith("strandline: "))
sys.stdout.flush()
os._exit(int(any(ended)))
