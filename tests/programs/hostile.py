"""The same work in surroundings that a recorder must bear; the last line is what came of it.

    hostile.py signals|traced|forks|closed|daemon|reused|absent|descriptors|memory
"""

import gc
import hashlib
import os
import resource
import signal
import sys
import threading
import time

import torch

how = sys.argv[1]
signals = 0
data = []
if how == "absent":  # there is no stderr from the beginning
    os.close(2)
    os.execv(sys.executable, [sys.executable, "-u", __file__, "reused"])
elif how == "reused":  # the next file has its number
    os.path.exists("/proc/self/fd/2") and os.close(2)
    data = [os.open("data0", os.O_RDWR | os.O_CREAT)]
    assert data == [2]


def handler(*_):
    global signals
    signals += 1


def traced(*_):
    return traced


if how == "signals":  # a signal each millisecond, of time and of work
    for number, timer in ((signal.SIGALRM, signal.ITIMER_REAL), (signal.SIGPROF, signal.ITIMER_PROF)):
        signal.signal(number, handler)
        signal.setitimer(timer, 0.001, 0.001)
elif how == "traced":
    gc.set_threshold(1)
    sys.setprofile(lambda *_: None)
    threading.setprofile(lambda *_: None)
    sys.settrace(traced)
    threading.settrace(traced)
elif how == "descriptors":  # no more than are open
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 3, 4096))
elif how == "memory":  # 16 MiB of addresses more than are in use, of which the tail takes more
    pages = int(open("/proc/self/statm").read().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * 4096 + (16 << 20), resource.RLIM_INFINITY))

try:
    torch.empty(1, device="cuda")
finally:
    if how == "memory":
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)

if how == "closed":
    os.closerange(3, 4096)
elif how == "daemon":  # and all that was closed is files of its own now, its standard descriptors too
    out = os.dup2(1, 5000) if resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 5000 else 1
    os.closerange(0, 1)
    os.closerange(2, 4096)
    data = [os.open(f"data{n}", os.O_RDWR | os.O_CREAT) for n in range(900)]


def work(n):
    for i in range(300):
        block = torch.empty(512 * (n + 1) * (i % 7 + 1), device="cuda", dtype=torch.uint8)
        del block


threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
for t in threads:
    t.start()


def child():
    """What a forked child does while its parent's threads allocate: Python, code objects that die, threads of its own."""
    pid = os.fork()
    if pid == 0:
        exec(compile("def f():\n    return 1\nf()", "<child>", "exec"), {})
        gc.collect()
        t = threading.Thread(target=sum, args=(range(1000),))
        t.start()
        t.join()
        os._exit(7)
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    return "hangs"


children = {child() for _ in range(20)} if how == "forks" else set()
torch.manual_seed(0)
model = torch.nn.Linear(16, 4)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
losses = []
for step in range(10):
    optimizer.zero_grad()
    loss = model(torch.randn(32, 16)).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    kept = [torch.empty(1000 * (n + 1), device="cuda", dtype=torch.uint8) for n in range(20)]
for t in threads:
    t.join()
for timer in (signal.ITIMER_REAL, signal.ITIMER_PROF):
    signal.setitimer(timer, 0)
time.sleep(0.3)  # what is to be written meanwhile is
touched = sum(os.path.getsize(f"data{n}") > 0 for n in range(len(data)))
stats = torch.cuda.memory_stats()
print(
    hashlib.sha256(repr(losses).encode()).hexdigest()[:16],
    stats["allocation.all.allocated"],
    stats["allocated_bytes.all.current"],
    sorted(children),
    how != "signals" or signals > 5,
    touched,
    flush=True,
)
