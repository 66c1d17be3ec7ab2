"""Runs one workload under torch's own memory history and writes that history, for comparison with a recording.

    equality.py CASE OUT     OUT gets JSON lines: events per device in torch's order, then the totals.
"""

import json
import sys
import threading

import torch

DEVICE_COUNT = torch.cuda.device_count()


def mlp(device, width=256):
    return torch.nn.Sequential(
        torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width)
    ).to(device)


def train(device="cuda:0", steps=6):
    model = mlp(device)
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(steps):
        optimizer.zero_grad()
        batch = torch.randn(16 + step, 256, device=device)
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()


def plain():
    train()


def side_streams():
    side = [torch.cuda.Stream() for _ in range(3)]
    main = torch.cuda.current_stream()
    kept = []
    for i in range(40):
        stream = side[i % 3]
        stream.wait_stream(main)
        with torch.cuda.stream(stream):
            block = torch.empty(1 << (12 + i % 8), device="cuda", dtype=torch.uint8)
        block.record_stream(main)
        main.wait_stream(stream)
        kept.append(block)
        if i % 5 == 4:
            kept = kept[3:]
        if i % 13 == 12:
            torch.cuda.synchronize()
    del kept
    torch.cuda.empty_cache()
    train(steps=2)


def expandable():
    train(steps=3)
    big = [torch.empty(40 << 20, device="cuda", dtype=torch.uint8) for _ in range(3)]
    del big
    torch.cuda.empty_cache()
    train(steps=2)


def capture():
    model = mlp("cuda")
    static = torch.randn(32, 256, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            model(static).sum().backward()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    for p in model.parameters():
        p.grad = None
    with torch.cuda.graph(graph):
        loss = model(static).sum()
        loss.backward()
    for _ in range(3):
        graph.replay()
    train(steps=2)
    del graph, loss
    torch.cuda.empty_cache()


def threads():
    def work(n):
        device = f"cuda:{n % DEVICE_COUNT}"
        torch.cuda.set_device(device)
        blocks = []
        for i in range(200):
            blocks.append(torch.empty(512 * (1 + (i * 7 + n) % 64), device=device, dtype=torch.uint8))
            if i % 3 == 2:
                del blocks[(i * 5) % len(blocks)]
        train(device, steps=2)

    workers = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()


def oom():
    free, total = torch.cuda.mem_get_info()
    hog = torch.empty(free - (512 << 20), device="cuda", dtype=torch.uint8)
    cached = [torch.empty(40 << 20, device="cuda", dtype=torch.uint8) for _ in range(5)]
    del cached
    retried = torch.empty(400 << 20, device="cuda", dtype=torch.uint8)  # frees the cache and tries again
    for _ in range(2):
        try:
            torch.empty(total, device="cuda", dtype=torch.uint8)
        except torch.OutOfMemoryError as e:
            assert "Tried to allocate" in str(e)
        else:
            raise AssertionError("no OutOfMemoryError")
    del hog, retried
    torch.cuda.empty_cache()  # a real driver needs memory of its own to load kernels
    train(steps=2)


CASES = {f.__name__: f for f in (plain, side_streams, expandable, capture, threads, oom)}


def main():
    case, out = sys.argv[1:]
    torch.cuda.memory._record_memory_history(stacks="python", max_entries=1_000_000)
    CASES[case]()
    stats = {d: torch.cuda.memory_stats(d) for d in range(DEVICE_COUNT)}
    traces = torch.cuda.memory._snapshot()["device_traces"]
    with open(out, "w") as f:
        for device, trace in enumerate(traces[:DEVICE_COUNT]):
            for e in trace:
                frames = [[x["filename"], x["line"], x["name"]] for x in e.get("frames", ())]
                row = dict(device=device, action=e["action"], size=e["size"], stream=e["stream"], frames=frames)
                row["addr"] = e["addr"] if "addr" in e else e.get("device_free", 0)
                json.dump(row, f)
                f.write("\n")
        for device, s in stats.items():
            row = dict(device=device, totals=True)
            for kind in ("allocated", "reserved"):
                row[kind] = s[f"{kind}_bytes.all.current"]
                row[f"peak_{kind}"] = s[f"{kind}_bytes.all.peak"]
            json.dump(row, f)
            f.write("\n")


main()
