"""What the benches have a process do: alloc/free pairs, steps that allocate much, steps of a large model, threads."""

import ctypes
import gc
import os
import sys
import threading
import time

TORCH = {"torch_python": "python", "torch_all": "all"}


def pairs(n):
    import torch
    empty, device, clock = torch.empty, torch.device("cuda"), time.perf_counter_ns
    start = clock()
    for _ in range(n):
        empty(1024, device=device)
    return (clock() - start) / n


def at_depth(depth, n):
    return pairs(n) if depth <= 0 else at_depth(depth - 1, n)


def pair(depth, n, repetitions=15):
    """Nanoseconds of a pair, the least of some."""
    import torch
    keep = torch.empty(1024, device="cuda")
    best = min(at_depth(int(depth) - 3, int(n)) for _ in range(int(repetitions)))
    del keep
    return [best]


class Steps:
    def __init__(self, model, batch, loss_of):
        import torch
        self.model, self.batch, self.loss_of = model, batch, loss_of
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, foreach=True)
        [self.step() for _ in range(3)]
        gc.collect()
        gc.disable()  # a collection belongs to no step

    def step(self):
        """Milliseconds of a step."""
        import torch
        torch.cuda.synchronize()
        start = time.perf_counter()
        self.optimizer.zero_grad(set_to_none=True)
        self.loss_of(self.model, self.batch).backward()
        self.optimizer.step()
        torch.cuda.synchronize()
        return (time.perf_counter() - start) * 1e3


def made_heavy():
    import torch
    layer = torch.nn.TransformerEncoderLayer(256, 4, 512, batch_first=True, dropout=0.1)
    model = torch.nn.TransformerEncoder(layer, 12, enable_nested_tensor=False).cuda()
    return Steps(model, torch.randn(4, 64, 256, device="cuda"), lambda m, x: m(x).square().mean())


def made_large():
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    small = os.environ.get("BENCH_SMALL")  # to try this where there is no card
    size = dict(hidden_size=128, intermediate_size=256, num_hidden_layers=4) if small else dict(
        hidden_size=2048, intermediate_size=5632, num_hidden_layers=22)
    config = LlamaConfig(num_attention_heads=32, num_key_value_heads=4, vocab_size=32000, **size)
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = LlamaForCausalLM(config).to(torch.bfloat16)
    batch = torch.randint(0, 32000, (4, 1024) if not small else (1, 64), device="cuda")
    return Steps(model, batch, lambda m, x: m(input_ids=x, labels=x).loss)


MADE = {}


def made(work):
    if work not in MADE:
        MADE[work] = {"heavy": made_heavy, "large": made_large}[work]()
    return MADE[work]


def steps(work, count):
    """Milliseconds of each of so many steps. The first is not told: caches are another process's in it."""
    return [made(work).step() for _ in range(int(count) + 1)][1:]


def threads(n):
    """16 threads that allocate at once; 0: only what they leave in memory matters."""
    started = threading.Barrier(16)

    def work():
        started.wait()
        at_depth(20, int(n))

    workers = [threading.Thread(target=work) for _ in range(16)]
    [w.start() for w in workers]
    [w.join() for w in workers]
    return [0]


WORKS = {"pair": pair, "heavy": lambda n: steps("heavy", n), "large": lambda n: steps("large", n), "threads": threads}


def begin(mode):
    import torch
    torch.cuda.init()
    if mode in TORCH:
        torch.cuda.memory._record_memory_history("all", stacks=TORCH[mode], max_entries=100_000)


def begin_late(library, out, stacks="python"):
    """Records from now on what was not recorded before; torch's own history where `library` is "torch"."""
    import torch
    if library == "torch":
        torch.cuda.memory._record_memory_history("all", stacks="python", max_entries=100_000)
        return True
    ctypes.CDLL(library)  # the package takes the one that is there
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "python"))
    import strandline
    return strandline.start(out=out, stacks=stacks, quiet=True)
