"""What tests/gpu/predict.sh runs on a card. A run that fails is a line that says so; the others go on.

    predict_card.py CARRY OUT WORK [bare] [fit] [advice] [nocudnn]
"""
import concurrent.futures
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import models
from predict_simulated import FIT_STEPS, MODES

PARTS = ("bare", "advice", "fit", "nocudnn")
HERE = pathlib.Path(__file__).resolve().parent
SEEN = ("late_zero_grad", "kept_from_step_before", "wide_copy", "optimizer_temporaries", "collected_in_evaluation")
# What a process may take besides what PyTorch may, at most, and what stays free: GiB.
BESIDE, SPARE, SCALE = 1.6, 2.0, 32
began, until = time.monotonic(), float(os.environ.get("SECONDS_IN_ALL", "480"))
lock = threading.Condition()
carry, out, work = (pathlib.Path(a) for a in sys.argv[1:4])
parts = sys.argv[4:] or PARTS


def left():
    return began + until - time.monotonic()


def say(**line):
    with lock:
        with open(out / "card.jsonl", "a") as f:
            f.write(json.dumps(line) + "\n")
        print(f"{time.monotonic() - began:5.0f} s", json.dumps(line)[:330], flush=True)


def total_gib():
    ask = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits", "--id=0"]
    return int(subprocess.run(ask, capture_output=True, text=True, check=True).stdout) / 1024


class Room:
    """The card's memory, of which each run takes what it may use."""

    def __init__(self, gib):
        self.free = gib

    def take(self, gib):
        with lock:
            lock.wait_for(lambda: self.free >= gib)
            self.free -= gib

    def give(self, gib):
        with lock:
            self.free += gib
            lock.notify_all()


def run(words, room=None, gib=0.0, seconds=150, **env):
    """Runs a job; with `room`, it imports what it needs and then waits for its part of it. Its status and what it printed."""
    if left() < 20:
        return "no time was left", "", ""
    job = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **env}, start_new_session=True
    )
    if room:
        room.take(gib)
    try:
        told, errors = job.communicate("go\n", timeout=max(1, min(seconds, left())))
        return job.returncode, told, errors
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)
        told, errors = job.communicate()
        return "no end in time", told, errors
    finally:
        if room:
            room.give(gib)


def model(name, *options, **more):
    """What a model says of its run."""
    status, told, errors = run([sys.executable, str(HERE / "models.py"), name, *map(str, options)], **more)
    lines = [line for line in told.splitlines() if line.startswith('{"model"')]
    return {"status": status, **(json.loads(lines[-1]) if lines else {"errors": errors[-800:]})}


def bare(name, mode, *options):
    """The card for itself."""
    said = model(name, *options, seconds=100, TURN=str(work / "turn"), **MODES[mode])
    say(part="nocudnn" if options else "bare", mode=mode, name=name, **said)


def besides():
    """What each model took of the card besides what PyTorch reserved: MiB."""
    found = {}
    for path in (carry / "card.jsonl", out / "card.jsonl"):
        for line in path.read_text().splitlines() if path.exists() else []:
            line = json.loads(line)
            if line["part"] == "bare" and line["mode"] == "default" and "used" in line:
                found[line["name"]] = (line["used"] - line["reserved_now"]) / 2**20
    return found


def fits(room, name, card, value, expected, beside):
    size = float(card.removesuffix("GiB"))
    options = ["--wait", "--batch", value, "--steps", FIT_STEPS, "--card", size, "--beside", beside]
    said = model(name, *options, room=room, gib=size + BESIDE, seconds=200)
    say(part="fit", name=name, size=card, value=value, expected=expected, beside=beside, **said)


def advised(room, job, variant):
    folder = work / f"{job}-{variant}"
    strandline = str(carry / "strandline")
    status, told, errors = run(
        [strandline, "run", "--quiet", "-o", str(folder), "--", sys.executable, str(HERE.parent / "python/advised.py"), job, variant, str(SCALE)], room=room, gib=30
    )
    advice = subprocess.run([strandline, "advise", str(folder), "--json"], capture_output=True, text=True)
    try:
        device = json.loads(advice.stdout)["processes"][0]["devices"][0]
    except (ValueError, LookupError):
        device = {"errors": (errors + advice.stderr)[-600:]}
    say(part="advice", job=job, variant=variant, status=status, peak=int(told.split()[3]) if told else None, told=device)


def together(at_once, jobs):
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        for done in [pool.submit(*job) for job in jobs]:
            try:
                done.result()
            except Exception as e:  # a check that breaks: the others go on
                say(part="broken", error=repr(e))


def main():
    if set(parts) - set(PARTS):
        sys.exit(f"no such part: {parts}; there are {PARTS}")
    (work / "turn").touch()
    total = total_gib()
    chosen = os.environ.get("MODELS", " ".join(models.MODELS)).split()
    room = Room(total - SPARE)
    for part in parts:
        if part == "bare":
            together(5, [(bare, name, mode) for mode in MODES for name in chosen])
        if part == "nocudnn":
            together(5, [(bare, name, "default", "--no-cudnn") for name in ("gan", "diffusion", "cnn", "vlm") if name in chosen])
        if part == "advice":
            together(4, [(advised, room, job, variant) for job in SEEN for variant in ("waste", "tuned")])
        if part == "fit":
            simulated, beside = json.loads((carry / "simulated.json").read_text()), besides()
            jobs = []
            for name, said in simulated.items():
                # Large ones and small ones in turn: the small ones fill what the large ones leave.
                if name not in chosen:
                    continue
                for card in ("80GiB" if total > 84 else "60GiB", "40GiB", "24GiB"):
                    found = said.get("fit", {}).get(card)
                    for key, expected in (("value", "runs"), ("does_not_fit", "fails")) if found else ():
                        if found[key] is not None:
                            jobs.append((fits, room, name, card, found[key], expected, round(beside.get(name, 980.0), 1)))
            together(12, jobs)
    print(f"predict: {' '.join(parts)} in {time.monotonic() - began:.0f} s")


main()
