"""Jobs of a few seconds that keep tensors where Python's own library, or a tensor, has them, beside those of keeps.py, whose model and
steps they use. `kept_by_others.py CASE`; the statement that keeps ends with `# KEEPS CASE`."""

import collections, logging, logging.handlers, sys, weakref

import torch

from keeps import batch, net, steps

CASES = {}
by_name = []
log = logging.getLogger("train")


def case(f):
    CASES[f.__name__] = f
    return f


@case
def of_a_parameter():
    """An attribute of a parameter."""
    weight = net[0].weight
    weight.history = []
    for i in steps():
        weight.history.append(batch())  # KEEPS of_a_parameter


@case
def of_a_tensor():
    """The same of a tensor that is no parameter."""
    running = torch.zeros(8, device="cuda")
    running.parts = {}
    for i in steps():
        running.parts[i] = batch()  # KEEPS of_a_tensor


@case
def chain_map():
    layers = collections.ChainMap({}, {"rate": 0.1})
    for i in steps():
        layers[i] = batch()  # KEEPS chain_map


@case
def finalizers():
    owners = []
    for i in steps():
        owner = collections.UserList()
        owners.append(owner)
        weakref.finalize(owner, torch.Tensor.sum, batch())  # KEEPS finalizers


@case
def log_records():
    handler = logging.handlers.MemoryHandler(1 << 20, flushLevel=100)
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    for i in steps():
        log.info("step %d", i)
        log.info("a batch: %s", batch())  # KEEPS log_records
    handler.buffer.clear()


class Records(logging.Handler):
    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        self.records.append(record)  # KEEPS handler_of_its_own


@case
def handler_of_its_own():
    log.addHandler(Records())
    log.setLevel(logging.INFO)
    for i in steps():
        log.info("a batch: %s", batch())


@case
def by_globals():
    for i in steps():
        globals()["by_name"].append(batch())  # KEEPS by_globals


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("\n".join(CASES))
    CASES[sys.argv[1]]()
    print("done", sys.argv[1], sum(p.numel() for p in net.parameters()))
