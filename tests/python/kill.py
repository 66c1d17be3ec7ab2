"""SIGKILL at random moments: the recording must read to the last event that the job had seen done.

    kill.py LIBSTRANDLINE STRANDLINE_COMMAND DIR [N [run]]     prints "N passed, M failed"; exit status 1 where one failed

With `run` all of it is one job of `strandline run`, which keeps the tails; else each process has its tail in a file. Either way
nothing is left in shared memory, and nobody keeps a tail, once every recording has been read.

torch is imported once, and a child is forked for each kill (CUDA is first touched in the child), so that fifty kills take
seconds. Two threads of the child allocate, and count what they have seen done in a page that they share with their parent.
Every fifth kill comes while the child is still starting: there may be no recording yet, and what there is must be read.
"""

import concurrent.futures
import ctypes
import json
import mmap
import os
import random
import re
import signal
import struct
import subprocess
import sys
import threading
import time

library, command, where = sys.argv[1:4]
kills = int(sys.argv[4]) if len(sys.argv) > 4 else 50
run = sys.argv[5:] == ["run"]
tails = os.path.join(where, "tails")
if "KILL_IS_BEGUN" not in os.environ:  # once more, with the shim in place
    os.makedirs(tails, exist_ok=True)
    env = {k: v for k, v in os.environ.items() if not k.startswith("STRANDLINE_T")} | {"KILL_IS_BEGUN": "1"}
    words = [sys.executable, *sys.argv]
    if run:
        words = [command, "run", "-q", "-o", os.path.join(where, "run"), "--", *words]
        env.pop("LD_PRELOAD", None)
    else:
        env |= {"LD_PRELOAD": library, "STRANDLINE_QUIET": "1", "STRANDLINE_TAIL": tails}
    sys.exit(subprocess.run(words, env=env).returncode)
import torch

THREADS = 2
SEED = 7
# Of each thread. What it makes of records fits into its ring, so that nothing is lost however busy the machine is.
MOST = 8000
BARE = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD" and not k.startswith("STRANDLINE_")}


def job(page, out):
    os.environ["STRANDLINE_OUT"] = out
    # One aligned store per number; struct.pack_into clears it first, and a kill may come in between.
    counts = (ctypes.c_uint64 * (1 + THREADS)).from_buffer(page)

    def work(i):
        kept = []
        for n in range(1, MOST + 1):
            t = torch.empty(128 * (1 + n % 50), device="cuda")
            counts[1 + i] = n
            kept.append(t)
            del t
            if len(kept) > 20:
                kept.clear()
                time.sleep(0.0004)

    torch.empty(1, device="cuda")
    threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(THREADS)]
    for t in threads:
        t.start()
    counts[0] = 1  # running
    time.sleep(600)


pids = []


def kill(k, rng):
    """Starts a child and kills it: its recording, and what it had counted (None: it was still starting)."""
    out = os.path.join(where, f"kill-{k}.strand")
    page = mmap.mmap(-1, 4096)
    pid = os.fork()
    pids.append(pid)
    if pid == 0:
        try:
            job(page, out)
        finally:
            os._exit(9)
    starting = k % 5 == 4
    # A moment of the job's own time, whoever else is at work: so many allocations.
    moment = rng.randrange(MOST)
    if not starting:
        while not struct.unpack_from("<Q", page, 0)[0] or counted(page) < moment:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                raise SystemExit(f"kill {k}: the job ended by itself: {status}")
            time.sleep(0.001)
    time.sleep(rng.random() * 0.02)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return out, None if starting else counted(page)


def counted(page):
    """What both threads have seen done."""
    return sum(struct.unpack_from("<Q", page, 8 + 8 * i)[0] for i in range(THREADS))


def look(out, counted):
    """What is wrong with a recording; None: nothing."""
    if not os.path.exists(out):
        return None if counted is None else "no recording"
    said, dumped = (
        subprocess.run([command, *words], capture_output=True, text=True, env=BARE)
        for words in (["report", out, "--format", "json"], ["dump", out])
    )
    if counted is None and os.path.getsize(out) == 0:
        return None if said.returncode == 2 else f"an empty file: status {said.returncode}"
    if (said.returncode, dumped.returncode) != (0, 0):
        return f"cannot be read: {said.stderr.strip()[-300:]}"
    process = json.loads(said.stdout)["processes"][0]
    state = {k: process[k] for k in ("ended", "events_lost", "damage", "accounting_drift_bytes")}
    drift = state["accounting_drift_bytes"]
    # Whoever kept the tail saw how the process ended.
    if state["ended"] not in ("unknown", "signal 9") or state["events_lost"] or state["damage"] or drift:
        if not (counted is None and drift is None):
            return str(state)
    seen = len(re.findall(r"(?m)^\S+ alloc ", dumped.stdout))
    # The first allocation, plus at most one of each thread that was done but not yet counted.
    if counted is not None and not counted + 1 <= seen <= counted + 1 + THREADS:
        return f"{counted} counted, {seen} in the recording"
    return None


rng = random.Random(SEED)
# Others' processes may have had the numbers that ours get.
before = set(os.listdir("/dev/shm"))
killed = [kill(k, rng) for k in range(kills)]
with concurrent.futures.ThreadPoolExecutor(2) as pool:
    wrong = [w for w in pool.map(lambda k: look(*k), killed)]
for k, w in enumerate(wrong):
    if w:
        print(f"kill {k} of seed {SEED}: {w}")
made = sum(os.path.exists(out) for out, _ in killed)


def left():
    """What is still kept of processes that are dead."""
    own = [n for n in os.listdir(tails) if n.startswith("strandline-")]
    keeper = f"/proc/{os.getppid()}/fd"
    memory = [os.readlink(f"{keeper}/{n}") for n in os.listdir(keeper) if os.path.lexists(f"{keeper}/{n}")] if run else []
    shared = [n for n in set(os.listdir("/dev/shm")) - before if any(f"-{pid}-" in n for pid in pids) and n.startswith("strandline-")]
    return own + shared + [m for m in memory if "memfd:strandline-" in m]


ends = time.monotonic() + 60
while left() and time.monotonic() < ends:
    time.sleep(0.05)
if left():
    print("left in memory:", left())
    made = 0
total = sum(c or 0 for _, c in killed)
bad = sum(w is not None for w in wrong)
print(f"{kills - bad} passed, {bad} failed ({made} recordings, {total} allocations counted)")
sys.exit(1 if bad or made < kills // 2 or total < 100 * kills else 0)
