"""Runs one workload under torch's own memory history and writes that history, for comparison with a recording.

    equality.py CASE OUT     OUT gets JSON lines: events per device in torch's order, then the totals.
"""

import asyncio
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


def transformer():
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    model = torch.nn.Sequential(torch.nn.TransformerEncoder(layer, 12), torch.nn.Linear(64, 8)).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(2):
        optimizer.zero_grad()
        model(torch.randn(2, 8 + step, 64, device="cuda")).square().mean().backward()
        optimizer.step()


def loader():
    def samples():
        for n in range(40):
            yield torch.full((64 + n,), float(n), device="cuda")

    def batches(source):
        batch = []
        for sample in source:
            batch.append(sample[:64])
            if len(batch) == 4:
                yield torch.stack(batch)
                batch = []

    def prefetched(source):
        ahead = next(source)
        for item in source:
            yield ahead
            ahead = item * 2
        yield from (ahead, ahead + 1)

    model = mlp("cuda", 64)
    for batch in prefetched(batches(samples())):
        model(batch).sum().backward()


def asynchronous():
    async def fetch(n):
        block = torch.empty(256 + n, device="cuda")
        await asyncio.sleep(0)
        return block * 2

    async def stream():
        for n in range(10):
            yield await fetch(n)

    async def run():
        both = await asyncio.gather(*(fetch(n) for n in range(10)))
        async for block in stream():
            both.append(block + 1)
        asyncio.get_running_loop().call_soon(lambda: both.append(torch.empty(9, device="cuda")))
        await asyncio.sleep(0.01)
        both += [await fetch(n) for n in range(3)]
        # Nothing is returned: asyncio prints a finished task's result, and tensors of this device take for ever to print.

    asyncio.run(run())


def recursion():
    def down(n):
        block = torch.empty(256 + n, device="cuda") if n % 50 == 0 else None
        return down(n - 1) if n else block

    sys.setrecursionlimit(3000)
    for _ in range(3):
        down(700)


def every_kind_of_frame():
    transformer()
    loader()
    asynchronous()
    recursion()


CASES = {f.__name__: f for f in (every_kind_of_frame, plain, side_streams, expandable, capture, threads, oom)}


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
