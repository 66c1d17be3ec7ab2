#!/usr/bin/env python3
"""Does anything grow while a job is recorded for hours.

    endurance.py --strandline BIN --python PYTHON [--seconds 7200] [--max-size MIB] [--out FILE.json]

A release build of the command. PYTHON has torch; without a GPU: strandline simulate --python.
The same job runs twice at once at full rate: alone, and by `strandline run`. Every ten seconds the resident memory of the job, of the
bare one and of `strandline run`, and the length of the recording, are read. What is printed for each: the slope after the first five
minutes in MiB an hour, with its bound to one side at 95 % (means of five minutes each, so that neighbours count once), which mappings have
more resident memory than after five minutes, the largest file, and what the report says of losses. Exit status 1 where a bound is above 1 MiB an hour, a file is longer than --max-size, or an event is lost.
"""
import argparse
import json
import math
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

JOB = r"""
import sys, threading, time
import torch
deadline = time.monotonic() + float(sys.argv[1])
model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(4)]).cuda()
optimizer = torch.optim.AdamW(model.parameters())
done = 0

def pairs(count):
    window = [None] * 64
    for i in range(count):
        window[i & 63] = torch.empty(512 * (1 + i % 31), device="cuda", dtype=torch.uint8)

def beside():
    while time.monotonic() < deadline:
        pairs(1000)

threading.Thread(target=beside).start()
while time.monotonic() < deadline:
    pairs(1000)
    exec(compile("torch.empty(512, device='cuda')", f"made{done % 50}", "exec"))
    model(torch.zeros(8, 64, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    done += 1
print(done, "steps")
"""
# Student's t, one side, 95 %, by degrees of freedom; beyond the list that of the normal distribution, a little more.
STUDENT = [6.31, 2.92, 2.35, 2.13, 2.02, 1.94, 1.90, 1.86, 1.83, 1.81, 1.80, 1.78, 1.77, 1.76, 1.75, 1.75, 1.74, 1.73, 1.73, 1.72]


def resident(pid):
    """Bytes, or None once it is gone."""
    try:
        return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    except (OSError, IndexError):
        return None


def mappings(pid):
    """Resident bytes by what is mapped: a file's name, `[heap]`, or `anonymous`. Empty once it is gone."""
    found, name = {}, None
    try:
        for line in pathlib.Path(f"/proc/{pid}/smaps").read_text().splitlines():
            words = line.split()
            if words[0] == "Rss:":
                found[name] = found.get(name, 0) + int(words[1]) * 1024
            elif not words[0].endswith(":"):
                name = words[5] if len(words) > 5 else "anonymous"
    except OSError:
        pass
    return found


def child_of(pid):
    """The job of a `strandline run`: its child that has our script."""
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                if int(stat[1]) == pid and b"pairs(count)" in (entry / "cmdline").read_bytes():
                    return int(entry.name)
            except OSError:
                continue
    return None


def slope(samples, warm, width=300):
    """MiB an hour and its bound to one side at 95 %, from means of `width` seconds after `warm`."""
    rooms = {}
    for at, value in samples:
        if at >= warm:
            rooms.setdefault(int((at - warm) // width), []).append(value)
    points = [(k * width / 3600, statistics.mean(v) / 2**20) for k, v in sorted(rooms.items())]
    if len(points) < 4:
        return None
    x, y = [p[0] for p in points], [p[1] for p in points]
    mx, my = statistics.mean(x), statistics.mean(y)
    sxx = sum((a - mx) ** 2 for a in x)
    b = sum((a - mx) * (c - my) for a, c in points) / sxx
    rest = sum((c - my - b * (a - mx)) ** 2 for a, c in points)
    freedom = len(points) - 2
    error = math.sqrt(rest / freedom / sxx)
    return b, b + (STUDENT[freedom - 1] if freedom <= len(STUDENT) else 1.7) * error


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strandline", required=True)
    parser.add_argument("--python", required=True)
    parser.add_argument("--seconds", type=float, default=7200)
    parser.add_argument("--max-size", type=int, default=64, help="MiB")
    parser.add_argument("--out", help="all samples, as JSON")
    options = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="endurance"))
    job = [options.python, "-c", JOB, str(options.seconds)]
    bare = subprocess.Popen(job, stdout=subprocess.PIPE, text=True)
    run = subprocess.Popen([options.strandline, "run", "-o", folder / "rec", "--max-size", f"{options.max_size}MiB", "--", *job],
                           stdout=subprocess.PIPE, stderr=(folder / "stderr").open("w"), text=True)
    samples = {"bare": [], "job": [], "run": [], "file": []}
    begun, pid, first, last = time.monotonic(), None, {}, {}
    warm = min(300, options.seconds / 4)
    while run.poll() is None:
        pid = pid or child_of(run.pid)
        at = time.monotonic() - begun
        length = sum(f.stat().st_size for f in (folder / "rec").glob("*.strand")) if (folder / "rec").exists() else 0
        for name, value in (("bare", resident(bare.pid)), ("job", pid and resident(pid)), ("run", resident(run.pid)), ("file", length)):
            if value:
                samples[name].append((at, value))
        if warm <= at < options.seconds - 30:
            for name, process in (("job", pid), ("run", run.pid)):
                last[name] = mappings(process)
                first.setdefault(name, last[name])
        time.sleep(10)
    status = bare.wait(), run.returncode
    steps = [p.stdout.read().strip() for p in (bare, run)]
    told = subprocess.run([options.strandline, "report", folder / "rec", "--format", "json"], stdout=subprocess.PIPE, text=True)
    process = json.loads(told.stdout)["processes"][0]
    longest = max(v for _, v in samples["file"])
    bad = longest > options.max_size * 2**20 or process["events_lost"] or process["accounting_drift_bytes"] or status != (0, 0)
    print(f"exit statuses {status}, {steps[0]} alone, {steps[1]} recorded, {process['events']} events, {process['events_lost']} lost, "
          f"{process['accounting_drift_bytes']} bytes off PyTorch's totals, longest file {longest / 2**20:.1f} MiB")
    for name in ("bare", "job", "run"):
        # The last half minute is the job's end.
        kept = [(t, v) for t, v in samples[name] if t < options.seconds - 30]
        found = slope(kept, warm, min(300, options.seconds / 12))
        if found:
            print(f"{name}: {found[0]:+.3f} MiB an hour, at most {found[1]:+.3f} at 95 %, {kept[-1][1] / 2**20:.1f} MiB in the end")
            bad = bad or (name != "bare" and found[1] > 1)
        grown = {k: v - first[name].get(k, 0) for k, v in last.get(name, {}).items() if v != first[name].get(k, 0)}
        for mapped, bytes_ in sorted(grown.items(), key=lambda g: -abs(g[1]))[:6]:
            print(f"  {bytes_ / 1024:+.0f} KiB {mapped}")
    if options.out:
        pathlib.Path(options.out).write_text(json.dumps({"samples": samples, "process": process}))
    print((folder / "stderr").read_text()[-1500:], file=sys.stderr)
    shutil.rmtree(folder)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
