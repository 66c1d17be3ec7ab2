"""One training loop per way in which jobs step; says how many steps it made, by its own count.

    steps.py CASE     prints {"steps": N, "microbatches": N, "peak": BYTES, ...} when it is done
"""

import ctypes
import json
import sys
import threading
import time

import torch
from torch.utils.checkpoint import checkpoint


def mlp(depth=6, width=64):
    layers = [torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.GELU()) for _ in range(depth)]
    return torch.nn.Sequential(*layers).cuda()


def batch(rows=16, width=64):
    return torch.randn(rows, width, device="cuda")


def loop(model, optimizers, steps, micro=1):
    for _ in range(steps):
        for _ in range(micro):
            model(batch()).square().mean().backward()
        for o in optimizers:
            o.step()
            o.zero_grad()
    return {"steps": steps, "microbatches": steps * micro}


def plain():
    model = mlp()
    return loop(model, [torch.optim.AdamW(model.parameters())], 6)


def in_backward():
    """An optimizer per parameter, run by a hook as soon as the parameter's gradient is there (as torchtune does)."""
    model = mlp()
    optimizers = {p: torch.optim.AdamW([p]) for p in model.parameters()}
    ran = 0

    def hook(p):
        nonlocal ran
        ran += 1
        optimizers[p].step()
        optimizers[p].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(hook)
    for _ in range(3):
        model(batch()).square().mean().backward()
    return {"steps": 3, "hooks": ran}


def two_in_one_step():
    """Matrices by Muon, the rest by AdamW."""
    model = mlp()
    matrices = [p for p in model.parameters() if p.ndim == 2]
    rest = [p for p in model.parameters() if p.ndim != 2]
    muon = getattr(torch.optim, "Muon", torch.optim.SGD)
    return loop(model, [muon(matrices, lr=1e-3), torch.optim.AdamW(rest)], 10)


def gan(critic=1, iterations=10):
    """The discriminator, then the generator."""
    d, g = mlp(3), mlp(3)
    od, og = torch.optim.Adam(d.parameters()), torch.optim.Adam(g.parameters())
    for _ in range(iterations):
        for _ in range(critic):
            od.zero_grad()
            (d(batch()).mean() - d(g(batch()).detach()).mean()).backward()
            od.step()
        og.zero_grad()
        d(g(batch())).mean().backward()
        og.step()
    return {"steps": iterations}


def gan_with_five_critics():
    return gan(5, 8)


def heads_by_name():
    """One line trains three models, each in its turn. There is one loop around it, so each pass is a step."""
    heads = {k: mlp(2) for k in ("boxes", "masks", "classes")}
    optimizers = {k: torch.optim.Adam(m.parameters()) for k, m in heads.items()}
    for i in range(30):
        k = ("boxes", "masks", "classes")[i % 3]
        optimizers[k].zero_grad()
        heads[k](batch()).square().mean().backward()
        optimizers[k].step()
    return {"steps": 30}


def scaler():
    """The real GradScaler, told of overflows: the scale is too large in the first steps, and now and then later."""
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler("cuda", init_scale=65536.0)
    unscale, step = scaler._unscale_grads_, 0
    overflows = {1, 2, 3, 9, 14, 15}

    def unscale_and_tell(*args):
        found = unscale(*args)
        # What the kernel would have found, so that it is the same with and without a GPU that runs kernels.
        return {device: torch.tensor(float(step in overflows)) for device in found}

    scaler._unscale_grads_ = unscale_and_tell
    ran = []
    optimizer.register_step_post_hook(lambda *_: ran.append(step))
    for step in range(1, 21):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(batch()).square().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    return {"steps": 20, "ran": len(ran), "skipped": len(overflows)}


def skipped_by_hand():
    """A loop that drops a step whose loss is bad, without telling anybody."""
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(16):
        optimizer.zero_grad()
        model(batch()).square().mean().backward()
        if step not in (8, 12):
            optimizer.step()
    return {"steps": 16}


def sub_groups(allocate):
    model = mlp()
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters)
    group = optimizer.param_groups[0]
    for _ in range(6):
        model(batch()).square().mean().backward()
        for i in range(0, len(parameters), 3):
            if allocate:  # the gradients of the group in a precision of its own
                for p in parameters[i : i + 3]:
                    p.grad = p.grad.double().float()
            group["params"] = parameters[i : i + 3]
            optimizer.step()
        group["params"] = parameters
        optimizer.zero_grad()
    return {"steps": 6}


def zero():
    """As ZeRO: one optimizer runs once for each sub-group."""
    return sub_groups(False)


def zero_that_allocates():
    """As ZeRO-3: the same, and each sub-group's gradients are made just before."""
    return sub_groups(True)


def accumulation():
    model = mlp()
    return loop(model, [torch.optim.AdamW(model.parameters())], 5, 16)


def main_thread_backward():
    model = mlp()
    with torch.autograd.set_multithreading_enabled(False):
        return loop(model, [torch.optim.AdamW(model.parameters())], 6)


def worker():
    """Trains in a thread while main waits for it."""
    said = []
    t = threading.Thread(target=lambda: said.append(plain()))
    t.start()
    t.join()
    return said[0]


def threads_that_train():
    """Three threads, each of which trains a model of its own at its own pace."""
    said = []

    def train(steps, pause):
        model = mlp()
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(steps):
            loop(model, [optimizer], 1)
            time.sleep(pause)
        said.append(steps)

    threads = [threading.Thread(target=train, args=of) for of in [(10, 0.003), (10, 0.003), (20, 0.001)]]
    [t.start() for t in threads]
    [t.join() for t in threads]
    return {"steps": sum(said)}


def beside_a_loader():
    """Another thread allocates all the time, as a prefetching loader does."""
    over = threading.Event()

    def load():
        while not over.is_set():
            batch()
            time.sleep(0.0005)

    t = threading.Thread(target=load)
    t.start()
    try:
        return plain()
    finally:
        over.set()
        t.join()


def evaluation():
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(8):
        loop(model, [optimizer], 1)
        if step % 2:
            model.eval()
            with torch.no_grad():
                for _ in range(5):
                    model(batch(64)).square().mean().item()
            model.train()
    return {"steps": 8}


def double_backward():
    """A gradient penalty: a backward whose graph is differentiated again."""
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(6):
        optimizer.zero_grad()
        x = batch().requires_grad_()
        (g,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        (model(x).mean() + g.square().mean()).backward()
        optimizer.step()
    return {"steps": 6}


def nested_backward():
    """Reentrant checkpoints: a backward within a backward."""
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(6):
        optimizer.zero_grad()
        x = batch().requires_grad_()
        for layer in model:
            x = checkpoint(layer, x, use_reentrant=True)
        x.square().mean().backward()
        optimizer.step()
    return {"steps": 6, "microbatches": 6}


def lbfgs():
    model = mlp(2)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)
    evaluations = 0

    def closure():
        nonlocal evaluations
        evaluations += 1
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss

    for _ in range(7):
        x = batch()
        optimizer.step(closure)
    return {"steps": 7, "evaluations": evaluations}


def no_optimizer():
    """Gradients are used by hand: the ends of backward count."""
    model = mlp()
    for _ in range(20):
        model(batch()).square().mean().backward()
        with torch.no_grad():
            for p in model.parameters():
                p.sub_(p.grad, alpha=0.01)
                p.grad = None
    return {"steps": 20}


def neither():
    """Inference: time is all there is."""
    model = mlp()
    kept = []
    start = time.monotonic()
    with torch.no_grad():
        while time.monotonic() - start < 2.5:
            kept.append(model(batch()))
            time.sleep(0.02)
    return {"iterations": len(kept)}


def manual():
    """The job says itself what a step is: two optimizer steps."""
    step = ctypes.CDLL(None).strandline_step
    step.argtypes = [ctypes.c_uint64]
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters())
    for n in range(1, 8):
        loop(model, [optimizer], 2)
        assert step(n) == 0
    return {"steps": 7}


def compiled():
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters())
    return loop(torch.compile(model, backend="eager"), [optimizer], 6)


def graphed():
    """Forward and backward are a captured graph; the optimizer runs by itself after each replay."""
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters())
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        loop(model, [optimizer], 3)
    torch.cuda.current_stream().wait_stream(side)
    graph, static = torch.cuda.CUDAGraph(), batch()
    with torch.cuda.graph(graph):
        model(static).square().mean().backward()
    for _ in range(10):
        static.copy_(batch())
        graph.replay()
        optimizer.step()
    return {"steps": 13}


def warmed_up():
    """Optimizer state is made by a step before there is any gradient, as sharded checkpoint loaders do."""
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters())
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    optimizer.zero_grad()
    return loop(model, [optimizer], 6)


if __name__ == "__main__":
    said = globals()[sys.argv[1]]()
    torch.cuda.synchronize()
    print(json.dumps(said | {"peak": torch.cuda.max_memory_allocated()}))
