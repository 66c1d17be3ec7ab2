"""SIGKILL at random moments: the recording must read to the last event that the job had seen done.

usage: kill.py LIBSTRANDLINE STRANDLINE_COMMAND DIR [N]     prints "N passed, M failed"; exit status 1 where one failed

Imports torch once and forks a child per kill (CUDA is first touched in the child), so that fifty kills take seconds.
The child counts the allocations that it has seen done in a page it shares with its parent; two threads allocate.
"""
import json, mmap, os, random, re, signal, struct, subprocess, sys, threading, time

lib, command, where = sys.argv[1:4]
kills = int(sys.argv[4]) if len(sys.argv) > 4 else 50
if os.environ.get("STRANDLINE_KILL_CHILD") is None:  # once more, with the shim in place
    env = dict(os.environ, STRANDLINE_KILL_CHILD="1", LD_PRELOAD=os.path.abspath(lib), STRANDLINE_QUIET="1", STRANDLINE_OUT=os.path.join(where, "rec"))
    os.makedirs(os.path.join(where, "rec"), exist_ok=True)
    sys.exit(subprocess.run([sys.executable, *sys.argv], env=env).returncode)
import torch

rng = random.Random(7)
THREADS = 2
CLEAN = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD" and not k.startswith("STRANDLINE_") or k.startswith("STRANDLINE_SIM_")}


def job(page):
    def work(i):
        kept = []
        n = 0
        while True:
            t = torch.empty(128 * (1 + n % 50), device="cuda")
            n += 1
            struct.pack_into("<Q", page, 8 + 8 * i, n)
            kept.append(t)
            del t
            if len(kept) > 20:
                kept.clear()
    torch.empty(1, device="cuda")
    threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(THREADS)]
    for t in threads:
        t.start()
    struct.pack_into("<Q", page, 0, 1)  # running
    for t in threads:
        t.join()


bad = 0
for k in range(kills):
    page = mmap.mmap(-1, 4096)
    pid = os.fork()
    if pid == 0:
        try:
            job(page)
        finally:
            os._exit(9)
    t0 = time.time()
    while struct.unpack_from("<Q", page, 0)[0] == 0 and time.time() - t0 < 60:
        time.sleep(0.001)
    time.sleep(rng.random() * 0.3)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    counted = sum(struct.unpack_from("<Q", page, 8 + 8 * i)[0] for i in range(THREADS))
    made = [f for f in os.listdir(os.path.join(where, "rec")) if f.endswith(".strand")]
    newest = max((os.path.join(where, "rec", f) for f in made), key=os.path.getmtime, default=None)
    if newest is None:
        print(f"kill {k}: no recording"); bad += 1; continue
    r = subprocess.run([command, "report", newest, "--format", "json"], capture_output=True, text=True, env=CLEAN)
    d = subprocess.run([command, "dump", newest], capture_output=True, text=True, env=CLEAN)
    seen = len(re.findall(r"(?m)\balloc\b", d.stdout))
    try:
        p = json.loads(r.stdout)["processes"][0]
        # the first allocation, plus at most one per thread that was done but not yet counted
        ok = counted + 1 <= seen <= counted + 1 + THREADS and p["events_lost"] == 0 and not p["damage"] and p["accounting_drift_bytes"] == 0
        ok = ok and p["ended"] in ("unknown", "signal 9")
        detail = f"ended {p['ended']} lost {p['events_lost']} damage {p['damage']}"
    except (ValueError, KeyError, IndexError):
        ok, detail = False, r.stderr.strip()[-300:]
    if not ok:
        bad += 1
        print(f"kill {k}: counted {counted}, in the recording {seen}; {detail}")
    os.unlink(newest)
print(f"{kills - bad} passed, {bad} failed")
sys.exit(1 if bad else 0)
