"""C++ and Python exceptions cross every hook; each is printed, and an allocation follows it."""

import torch


def said(what):
    try:
        what()
    except Exception as e:
        print(type(e).__name__, str(e).splitlines()[0][:60])
    else:
        print("no exception")
    torch.empty(1000, device="cuda", dtype=torch.uint8)


class Raises(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        raise KeyError("from backward")


def backward_raises():
    x = torch.ones(4, device="cuda", requires_grad=True)
    Raises.apply(x).sum().backward()


def backward_twice():
    x = torch.ones(4, device="cuda", requires_grad=True)
    y = (x * x).sum()
    y.backward()
    y.backward()


def out_of_memory():
    torch.empty(1 << 45, device="cuda", dtype=torch.uint8)


def cpu_record_stream():
    torch.empty(4).record_stream(torch.cuda.Stream())


def bad_capture():
    # A capture that is left by an exception ends.
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        raise ValueError("within a capture")


torch.empty(10, device="cuda")
for f in (out_of_memory, backward_raises, backward_twice, cpu_record_stream, bad_capture):
    said(f)
x = torch.ones(4, device="cuda", requires_grad=True)
(x * x).sum().backward()
print("end", torch.cuda.memory_allocated() >= 0)
