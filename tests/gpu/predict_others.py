#!/usr/bin/env python3
"""What other tools say of the models of tests/gpu/models.py: accelerate's estimate-memory, DeepSpeed's estimators, PyTorch's MemTracker.

usage: predict_others.py OTHERS.json [MODEL…]

On a simulated GPU, whose Python has accelerate and DeepSpeed. The first two are given the model alone, as their commands are: no batch. They are
asked for Adam in float32, what both speak of. MemTracker sees two steps. Bytes; `null` where a tool does not apply.
"""
import json
import os
import sys
import traceback

import models


def accelerates(model):
    from accelerate.commands.estimate import calculate_maximum_sizes, estimate_training_usage

    # `estimate-memory` makes the model in float32, whatever the job does.
    total, _ = calculate_maximum_sizes(model.float())
    return max(estimate_training_usage(total, "float32").values())


def deepspeeds(model):
    from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs

    _, gpu = estimate_zero2_model_states_mem_needs(sum(p.numel() for p in model.parameters()), num_gpus_per_node=1, num_nodes=1, cpu_offload=False)
    return gpu


def trackers(name):
    from torch.distributed._tools.mem_tracker import MemTracker

    tracker = MemTracker()
    with tracker:
        make, batch, _ = models.MODELS[name]
        model, step = make(batch)
        tracker.track_external(model)
        for _ in range(2):
            step()
            tracker.reset_mod_stats()
    found = [parts["Total"] for device, parts in tracker.get_tracker_snapshot("peak").items() if device.type == "cuda"]
    return found[0]


def tried(what, *given):
    try:
        return what(*given)
    except Exception as e:
        traceback.print_exc(limit=-3)
        return {"failed": f"{type(e).__name__}: {e}"[:200]}


def main():
    out, *names = sys.argv[1:]
    done = json.load(open(out)) if os.path.exists(out) else {}
    for name in names or models.MODELS:
        model, _ = models.MODELS[name][0](1)
        done[name] = {"accelerate": tried(accelerates, model), "deepspeed": tried(deepspeeds, model), "memtracker": tried(trackers, name)}
        print(name, done[name], flush=True)
        with open(out, "w") as f:
            json.dump(done, f, indent=1)


main()
