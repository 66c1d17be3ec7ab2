"""A job that asks for strandline when it runs already. It prints what the report must say, as JSON.

    late.py train [leak] [STEPS]    16 steps; recorded from the end of the 4th on, with a cache that is given back after that
    late.py before                  recorded before the first CUDA call
    late.py bench STEP SCRIPT …     leakbench's SCRIPT, recorded from the end of STEP on
"""

import json
import os
import runpy
import sys

import torch

import strandline

what, leak = sys.argv[1], "leak" in sys.argv[2:]


def train(steps, late):
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 64)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    side, kept = torch.cuda.Stream(), []
    cached = torch.zeros(64 << 20, device="cuda", dtype=torch.uint8)
    said = {}
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        model(torch.randn(16, 64, device="cuda")).square().mean().backward()
        optimizer.step()
        with torch.cuda.stream(side):
            y = torch.zeros(4 << 20, device="cuda", dtype=torch.uint8)
            if leak:
                kept.append(torch.zeros(16 << 20, device="cuda", dtype=torch.uint8))  # LEAK
        y.record_stream(torch.cuda.current_stream())
        torch.cuda.current_stream().wait_stream(side)
        if step == late:
            said["before"] = torch.cuda.memory_allocated()
            said["path"] = strandline.start()
            said["again"] = strandline.start()
            torch.cuda.reset_peak_memory_stats()
        if step == late + 2:
            del cached
            torch.cuda.empty_cache()
    torch.cuda.synchronize()
    said["steps"] = steps - late
    said["peak"] = torch.cuda.max_memory_allocated()
    said["reserved"] = torch.cuda.max_memory_reserved()
    return said


if what == "train":
    steps = int(sys.argv[-1]) if sys.argv[-1].isdigit() else 16
    print(json.dumps(train(steps, 4)))
elif what == "before":
    path = strandline.start()
    print(json.dumps({"path": path, **train(12, 12)}))
else:
    late, script = int(sys.argv[2]), os.path.abspath(sys.argv[3])
    sys.path.insert(0, os.path.dirname(script))
    sys.argv = sys.argv[3:]
    import leakbench

    step = leakbench.Bench.step

    def stepped(self, i):
        step(self, i)
        if i + 1 == late:
            strandline.start()

    leakbench.Bench.step = stepped
    runpy.run_path(script, run_name="__main__")
