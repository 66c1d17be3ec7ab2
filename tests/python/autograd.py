"""Keeps every gradient that backward makes; prints what torch itself calls the nodes, and where backward was called.

    autograd.py      prints JSON: {"nodes": [names], "line": of the call of backward}
"""

import json
import sys

import torch
from torch.utils.checkpoint import checkpoint


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


def names(root):
    seen, todo = set(), [root]
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            todo.extend(n for n, _ in node.next_functions)
    return {n.name() for n in seen}


def step(model, x):
    y = checkpoint(model[1], torch.nn.functional.relu(model[0](x)), use_reentrant=True)
    loss = Twice.apply(model[2](y)).square().mean()
    graph = names(loss.grad_fn)
    line = sys._getframe().f_lineno + 1
    loss.backward()
    return graph, line


def main():
    model = torch.nn.ModuleList(torch.nn.Linear(512, 512, bias=False) for _ in range(3)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    kept, nodes = [], set()
    for _ in range(40):
        optimizer.zero_grad(set_to_none=True)
        graph, line = step(model, torch.randn(32, 512, device="cuda"))
        nodes |= graph
        optimizer.step()
        kept.append([p.grad for p in model.parameters()])
    # What the checkpointed part's own graph is made of is seen in backward alone.
    inner = model[1](torch.randn(32, 512, device="cuda")).square()
    print(json.dumps({"nodes": sorted(nodes | names(inner.grad_fn)), "line": line}))


main()
