"""Jobs by the pattern in which their optimizers run; says how many steps it made, by its own count.

    patterns.py [CASE…]     of each, prints {"case": CASE, "steps": N, "peak": BYTES} when it is done; without one, of every case

PyTorch is imported once. Each case runs in a child of its own, which calls CUDA first there and is recorded into CASE.strand.
"""

import copy
import json
import os
import random
import sys

import torch
import torch._dynamo  # What the first optimizer imports.

rng = random.Random(0)
CASES = {}


def case(f):
    CASES[f.__name__] = f
    return f


def mlp(depth=3, width=64):
    layers = [torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.GELU()) for _ in range(depth)]
    return torch.nn.Sequential(*layers).cuda()


def batch(rows=16, width=64):
    return torch.randn(rows, width, device="cuda")


def backward(model):
    model(batch()).square().mean().backward()


def step(model, optimizer, micro=1):
    for _ in range(micro):
        backward(model)
    optimizer.step()
    optimizer.zero_grad()


def train(steps, new=torch.optim.AdamW, **options):
    model = mlp()
    optimizer = new(model.parameters(), lr=1e-3, **options)
    for _ in range(steps):
        step(model, optimizer)
    return steps


@case
def accumulation_that_grows_and_shrinks():
    model, steps = mlp(), 0
    optimizer = torch.optim.AdamW(model.parameters())
    for micro in (1, 2, 4, 8, 4, 2, 1):
        for _ in range(8):
            step(model, optimizer, micro)
            steps += 1
    return steps


def accumulates(*counts):
    """A step for each number, of so many microbatches."""
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters())
    for micro in counts:
        step(model, optimizer, micro)
    return len(counts)


@case
def accumulation_that_doubles():
    return accumulates(*[4] * 10, *[8] * 40)


@case
def accumulation_that_begins_alone_and_then_by_two():
    return accumulates(*[1] * 10, *[2] * 40)


@case
def accumulation_that_is_halved():
    return accumulates(*[8] * 10, *[4] * 40)


@case
def rest_that_is_stepped():
    """Each epoch ends in a step of fewer microbatches."""
    return accumulates(*[4, 4, 4, 4, 2] * 12)


@case
def accumulation_by_tokens():
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(40):
        step(model, optimizer, rng.randint(1, 6))
    return 40


@case
def rest_that_is_dropped():
    """Each epoch ends in two microbatches that are no whole step, and drops them."""
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(5):
        for _ in range(6):
            step(model, optimizer, 4)
        backward(model)
        backward(model)
        optimizer.zero_grad()
    return 30


@case
def sweep():
    kinds = (torch.optim.AdamW, torch.optim.SGD, torch.optim.RMSprop, torch.optim.Adam)
    return sum(train(n, kind) for n, kind in zip((15, 7, 20, 1, 30), kinds + kinds[:1]))


@case
def folds():
    return sum(train(12) for _ in range(5))


@case
def federated():
    """Each round gives each client a copy of the model and a new optimizer; the average is made without one."""
    server, steps = mlp(), 0
    for _ in range(8):
        updates = []
        for local in (2, 3, 1):
            client = copy.deepcopy(server)
            optimizer = torch.optim.SGD(client.parameters(), 1e-2)
            for _ in range(local):
                step(client, optimizer)
                steps += 1
            updates.append([p.detach() for p in client.parameters()])
        with torch.no_grad():
            for p, *values in zip(server.parameters(), *updates):
                p.copy_(torch.stack(values).mean(0))
    return steps


@case
def reptile():
    """A new inner optimizer for every task; the outer update is made by hand."""
    model, steps = mlp(), 0
    for _ in range(20):
        task = copy.deepcopy(model)
        optimizer = torch.optim.SGD(task.parameters(), 1e-2)
        for _ in range(3):
            step(task, optimizer)
            steps += 1
        with torch.no_grad():
            for p, q in zip(model.parameters(), task.parameters()):
                p.lerp_(q, 0.1)
    return steps


def outer(tasks, inner, iterations=10):
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(iterations):
        for _ in range(tasks):
            task = copy.deepcopy(model)
            sgd = torch.optim.SGD(task.parameters(), 1e-2)
            for _ in range(inner):
                step(task, sgd)
        optimizer.zero_grad()
        backward(model)
        optimizer.step()
    return iterations


@case
def maml():
    return outer(1, 5)


@case
def maml_with_tasks():
    return outer(4, 2)


@case
def new_optimizer_for_each_step():
    model = mlp()
    for _ in range(40):
        step(model, torch.optim.SGD(model.parameters(), 1e-2))
    return 40


@case
def adam_then_sgd():
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters())
    for i in range(50):
        if i == 20:
            optimizer = torch.optim.SGD(model.parameters(), 1e-2)
        step(model, optimizer)
    return 50


def phases(steps, of_each):
    """Two models, trained by turns of so many steps."""
    pair = [mlp(), mlp()]
    optimizers = [torch.optim.AdamW(m.parameters()) for m in pair]
    for i in range(steps):
        step(pair[i // of_each % 2], optimizers[i // of_each % 2])
    return steps


@case
def turns_of_seven_steps():
    return phases(56, 7)


@case
def turns_of_thirty_steps():
    return phases(120, 30)


def replaced(rounds, steps):
    """One model, and a new optimizer for each round of so many steps."""
    model = mlp()
    for _ in range(rounds):
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(steps):
            step(model, optimizer)
    return rounds * steps


@case
def new_optimizer_every_second_step():
    return replaced(30, 2)


@case
def new_optimizer_every_five_steps():
    return replaced(12, 5)


@case
def new_optimizer_every_twenty_steps():
    return replaced(5, 20)


@case
def every_fourth_step_is_skipped():
    """As loops do where a loss is not a number: the gradients are dropped, and no optimizer runs. The iteration is a step."""
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters())
    for i in range(60):
        backward(model)
        if i % 4 != 3:
            optimizer.step()
        optimizer.zero_grad()
    return 60


def gan(iterations, critics):
    d, g = mlp(), mlp()
    od, og = torch.optim.Adam(d.parameters()), torch.optim.Adam(g.parameters())
    for _ in range(iterations):
        for _ in range(critics):
            od.zero_grad()
            (d(batch()).mean() - d(g(batch()).detach()).mean()).backward()
            od.step()
        og.zero_grad()
        d(g(batch())).mean().backward()
        og.step()
    return iterations


@case
def gan_with_ten_critics():
    return gan(6, 10)


@case
def sweep_of_gans():
    return gan(8, 1) + gan(5, 3) + gan(3, 1)


@case
def training_around_a_gan():
    return train(20) + gan(10, 2) + train(15)


@case
def three_optimizers_in_turns():
    models = [mlp(2) for _ in range(3)]
    optimizers = [torch.optim.Adam(m.parameters()) for m in models]
    for _ in range(10):
        for model, optimizer in zip(models, optimizers):
            step(model, optimizer)
    return 10


@case
def critic_alone_before():
    d, g = mlp(), mlp()
    od, og = torch.optim.Adam(d.parameters()), torch.optim.Adam(g.parameters())
    for _ in range(40):
        step(d, od)
    for _ in range(15):
        step(d, od)
        step(g, og)
    return 55


@case
def two_at_once_one_of_them_not_always():
    model = mlp()
    matrices = [p for p in model.parameters() if p.ndim == 2]
    rest = [p for p in model.parameters() if p.ndim != 2]
    muon = getattr(torch.optim, "Muon", torch.optim.SGD)(matrices, lr=1e-3)
    adam = torch.optim.AdamW(rest)
    for i in range(30):
        backward(model)
        if i % 3:
            muon.step()
        adam.step()
        model.zero_grad()
    return 30


class Sam(torch.optim.Optimizer):
    """Sharpness-aware minimization, as its usual implementation has it."""

    def __init__(self, parameters, base, rho=0.05, **options):
        super().__init__(parameters, dict(rho=rho, **options))
        self.base = base(self.param_groups, **options)

    @torch.no_grad()
    def first(self):
        for group in self.param_groups:
            for p in group["params"]:
                ascent = p.grad * group["rho"]
                p.add_(ascent)
                self.state[p]["ascent"] = ascent
        self.zero_grad()

    @torch.no_grad()
    def second(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(self.state[p]["ascent"])
        self.base.step()
        self.zero_grad()

    @torch.no_grad()
    def step(self, closure):
        closure = torch.enable_grad()(closure)
        self.first()
        closure()
        self.second()


@case
def sam():
    model = mlp()
    optimizer = Sam(model.parameters(), torch.optim.SGD, lr=1e-2)
    for _ in range(20):
        backward(model)
        optimizer.first()
        backward(model)
        optimizer.second()
    return 20


@case
def sam_with_a_closure():
    model = mlp()
    optimizer = Sam(model.parameters(), torch.optim.SGD, lr=1e-2)
    for _ in range(20):
        backward(model)
        optimizer.step(lambda: backward(model))
    return 20


@case
def sam_later():
    model = mlp()
    optimizer = Sam(model.parameters(), torch.optim.SGD, lr=1e-2)
    for i in range(40):
        backward(model)
        if i >= 20:
            optimizer.first()
            backward(model)
            optimizer.second()
        else:
            optimizer.base.step()
            optimizer.zero_grad()
    return 40


@case
def skipped_at_random_and_last():
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters())
    for i in range(50):
        backward(model)
        if i == 0 or i < 49 and rng.random() < 0.7:
            optimizer.step()
        optimizer.zero_grad()
    return 50


@case
def attack_before_each_step():
    """Gradients of the input by a few backwards, which fill the parameters' as well; they are dropped."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    for _ in range(20):
        x = batch()
        for _ in range(4):
            x.requires_grad_()
            model(x).square().mean().backward()
            x = (x + x.grad.sign()).detach()
            optimizer.zero_grad()
        step(model, optimizer)
    return 20


@case
def lbfgs_after_adam():
    steps, model = train(10), mlp(2)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)

    def closure():
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss

    for _ in range(8):
        x = batch()
        optimizer.step(closure)
    return steps + 8


@case
def fused_into_backward():
    """One optimizer per parameter, of which some accumulate: a backward each time is a step each time."""
    model = mlp()
    optimizers = {p: torch.optim.AdamW([p]) for p in model.parameters()}

    def hook(p):
        optimizers[p].step()
        optimizers[p].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(hook)
    for _ in range(12):
        backward(model)
    return 12


@case
def warm_starts():
    """State is made before each training of a sweep, as loaders of sharded checkpoints do."""
    for _ in range(4):
        model = mlp()
        optimizer = torch.optim.AdamW(model.parameters())
        for p in model.parameters():
            p.grad = torch.zeros_like(p)
        optimizer.step()
        optimizer.zero_grad()
        for _ in range(8):
            step(model, optimizer)
    return 32


def main(cases):
    for name in sys.argv[1:] or cases:
        if child := os.fork():
            if status := os.waitpid(child, 0)[1]:
                sys.exit(f"{name} ended with {status}")
            continue
        os.environ["STRANDLINE_OUT"] = f"{name}.strand"
        steps = cases[name]()
        torch.cuda.synchronize()
        print(json.dumps({"case": name, "steps": steps, "peak": torch.cuda.max_memory_allocated()}), flush=True)
        sys.exit()


if __name__ == "__main__":
    main(CASES)
