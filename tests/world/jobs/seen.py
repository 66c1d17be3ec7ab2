"""What every driver does before and after the library's own trainer: fixed seeds, and one last line that the runner compares.

The line is JSON: `losses` as exact hexadecimal floats, `peak` as torch.cuda.max_memory_allocated says it, and what else a driver has.
WORLD_SIMULATED=1: kernels do not run on the simulated device, and cuDNN is absent.
"""
import json
import os
import random
import sys
import warnings

warnings.filterwarnings("ignore")
SIMULATED = os.environ.get("WORLD_SIMULATED") == "1"


def start(seed=0):
    """Seeds Python, numpy and torch; on the simulated device leaves out what it does not have. Returns torch."""
    import torch

    random.seed(seed)
    torch.manual_seed(seed)
    try:
        import numpy

        numpy.random.seed(seed)
    except ImportError:
        pass
    if SIMULATED:
        torch.backends.cudnn.enabled = False
        torch.backends.cuda.enable_cudnn_sdp(False)
    return torch


def rows(dicts):
    """A datasets.Dataset under a name of its own: some versions of pyarrow cannot be pickled, from which datasets would make one."""
    import pyarrow
    from datasets import Dataset
    from datasets.table import InMemoryTable

    return Dataset(InMemoryTable(pyarrow.Table.from_pylist(dicts)), fingerprint="world")


def stepped(loss, optimizer):
    """One step of training from its loss; returns the loss as a number."""
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def exact(value):
    """A number as it is, to the last bit."""
    try:
        return float(value).hex()
    except (TypeError, ValueError):
        return repr(value)


def end(losses=(), **more):
    """The last line of a job."""
    torch = sys.modules.get("torch")
    peak = None
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
        peak = torch.cuda.max_memory_allocated()
    said = {"losses": [exact(v) for v in losses], "peak": peak, **more}
    print(json.dumps(said, sort_keys=True, default=repr), flush=True)


def chosen(jobs, doc):
    """The function that the first argument names; the rest of the arguments are its options."""
    if len(sys.argv) < 2 or sys.argv[1] not in jobs:
        sys.exit(f"{doc}\nexpected one of: {' '.join(sorted(jobs))}")
    return jobs[sys.argv[1]], sys.argv[2:]


def every(namespace):
    """The functions of a driver that are jobs: those without a leading underscore that the driver itself defines."""
    import inspect

    return {k: v for k, v in namespace.items() if inspect.isfunction(v) and getattr(v, "__module__", "") == "__main__" and not k.startswith("_")}
