"""Jobs of a few seconds that keep losses whose graphs keep objects of Python's, and these keep the memory. `kept_by_graphs.py CASE`; the statement that
keeps ends with `# KEEPS CASE`. The steps are those of keeps.py."""

import copy
import sys, time

import torch
from torch.utils.checkpoint import checkpoint

from keeps import batch, opt, steps

CASES = {}
weight = torch.ones(8, device="cuda", requires_grad=True)


def case(f):
    CASES[f.__name__] = f
    return f


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, kept):
        ctx.kept = kept
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


class Box:
    __slots__ = ("tensor", "more")

    def __init__(self, tensor):
        self.tensor, self.more = tensor, {"batch": [batch()]}


def packed(pack, unpack):
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        return (weight.exp() * weight).sum()


@case
def contexts_of_many_losses():
    """As many as a loop makes that hardly waits: a command that was built without optimization has to keep up with it, and with the job beside."""
    losses, end = {}, time.monotonic() + 3
    while time.monotonic() < end:
        loss = Scale.apply(weight, batch()).sum()
        losses[len(losses)] = loss  # KEEPS contexts_of_many_losses
        loss.backward(retain_graph=True)
        opt.step()
        time.sleep(0.002)


@case
def graphs_of_gradients():
    net = torch.nn.Linear(64, 64, device="cuda")
    for i in steps():
        out = net(torch.randn(1024, 64, device="cuda")).pow(2)
        out.mean().backward(create_graph=True)  # KEEPS graphs_of_gradients


@case
def copies_with_graphed_gradients():
    net = torch.nn.Linear(256, 256, device="cuda")
    for i in steps():
        fast = copy.deepcopy(net)
        fast(torch.randn(256, 256, device="cuda")).pow(2).mean().backward(create_graph=True)  # KEEPS copies_with_graphed_gradients


@case
def objects_on_contexts():
    losses = []
    for i in steps():
        losses.append(Scale.apply(weight * 2, {"parts": [batch(), batch()]}).sum())  # KEEPS objects_on_contexts


@case
def tuples_that_hooks_packed():
    losses = []
    for i in steps():
        losses.append(packed(lambda t: (batch(), t), lambda p: p[1]))  # KEEPS tuples_that_hooks_packed


@case
def objects_that_hooks_packed():
    losses = []
    for i in steps():
        losses.append(packed(Box, lambda p: p.tensor))  # KEEPS objects_that_hooks_packed


def with_hook(register, kept):
    y = weight * 2
    register(y)(lambda *gradients: None if kept is None else None)
    return y.sum()


@case
def hooks_of_nodes():
    losses = []
    for i in steps():
        losses.append(with_hook(lambda y: y.grad_fn.register_hook, batch()))  # KEEPS hooks_of_nodes


@case
def hooks_of_tensors_inside():
    losses = []
    for i in steps():
        losses.append(with_hook(lambda y: y.register_hook, batch()))  # KEEPS hooks_of_tensors_inside


@case
def notes_on_nodes():
    losses = []
    for i in steps():
        loss = weight.exp().sum()
        loss.grad_fn.metadata["batch"] = batch()
        losses.append(loss)  # KEEPS notes_on_nodes


@case
def arguments_of_checkpoints():
    losses = []
    for i in steps():
        loss = checkpoint(lambda w, x: (w * x[0, :8]).exp(), weight, batch(), use_reentrant=False).sum()
        losses.append(loss)  # KEEPS arguments_of_checkpoints


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("\n".join(CASES))
    CASES[sys.argv[1]]()
    print(f"done {sys.argv[1]} {weight.sum()}")
