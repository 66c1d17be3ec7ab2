"""What the checks of tests/gpu share: jobs run with what was built elsewhere, their reports, and lines that say PASS or FAIL."""

import argparse
import concurrent.futures
import json
import os
import signal
import subprocess
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Several GPUs of one host without NVLink multicast: it is left off wherever NCCL could choose it.
NO_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}
MIB, GIB = 1 << 20, 1 << 30


def asked(doc, parts, simulated=None, jobs=None, **more):
    """What a script was asked for: its options, which parts (those given, or all; on the simulated device `simulated`), and what was carried.

    `more`: further options, each with what `add_argument` takes."""
    p = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("carry")
    p.add_argument("out")
    p.add_argument("parts", nargs="*", default=[])
    p.add_argument("--python", default=sys.executable)
    p.add_argument("--simulated", action="store_true")
    if jobs:
        p.add_argument("--jobs", type=int, default=jobs)
    for name, how in more.items():
        p.add_argument(f"--{name}", **how)
    args = p.parse_intermixed_args()
    if set(args.parts) - set(parts):
        p.error(f"no such part: {' '.join(sorted(set(args.parts) - set(parts)))}; there are {' '.join(parts)}")
    chosen = args.parts or (simulated if args.simulated and simulated else parts)
    return args, chosen, Carried(args.carry, args.out, args.python, args.simulated)


def cards():
    """How many GPUs this host has."""
    listed = subprocess.run(["nvidia-smi", "-L"], stdout=subprocess.PIPE, text=True).stdout
    return sum(line.startswith("GPU ") for line in listed.splitlines())


class Carried:
    """The command and the library that were built elsewhere, and a folder for what they make."""

    def __init__(self, carry, work, python=sys.executable, simulated=False):
        self.command = os.path.join(os.path.abspath(carry), "strandline")
        self.library = os.path.join(os.path.abspath(carry), "libstrandline.so")
        self.wheels = os.path.join(os.path.abspath(carry), "wheels")
        self.work, self.python, self.simulated = os.path.abspath(work), python, simulated
        self.failed, self.began = 0, time.time()
        self._lock = threading.Lock()
        os.makedirs(self.work, exist_ok=True)

    def environment(self, **more):
        env = {k: v for k, v in os.environ.items() if not k.startswith("STRANDLINE_") or k.startswith("STRANDLINE_SIM")}
        env.pop("LD_PRELOAD", None)
        env.update(NO_MULTICAST, PYTHONUNBUFFERED="1", STRANDLINE_BIN=self.command)
        env["PYTHONPATH"] = os.pathsep.join([os.path.join(ROOT, "tools/python"), os.path.join(ROOT, "tests/leakbench")])
        env.setdefault("OMP_NUM_THREADS", "2")
        if self.simulated:
            env["LEAKBENCH_NO_CUDNN"] = "1"
        env.update(more)
        return env

    def run(self, name, words, preload=True, seconds=150, **env):
        """A job, under `strandline run` or (`preload=False`) as it is. Its result has what it printed and its report."""
        folder = os.path.join(self.work, name)
        os.makedirs(folder, exist_ok=True)
        out = os.path.join(folder, "rec")
        if preload:
            words = [self.command, "run", "-o", out, "--", *words]
        else:
            env = {"STRANDLINE_OUT": out, "STRANDLINE_QUIET": "1", **env}
        began = time.time()
        with open(os.path.join(folder, "stdout"), "w") as o, open(os.path.join(folder, "stderr"), "w") as e:
            job = subprocess.Popen(words, env=self.environment(**env), cwd=ROOT, stdin=subprocess.DEVNULL, stdout=o, stderr=e, start_new_session=True)
            try:
                status = job.wait(seconds)
            except subprocess.TimeoutExpired:
                os.killpg(job.pid, signal.SIGKILL)
                status = f"killed after {seconds} s"
                job.wait()
        return Ran(self, folder, out, status, time.time() - began)

    def job(self, name, script, *arguments, **more):
        return self.run(name, [self.python, os.path.join(ROOT, script), *map(str, arguments)], **more)

    def check(self, name, wrong, figures="", *told):
        """One line; where something is wrong, what it is, and the texts of these runs."""
        lines = [f"{'FAIL' if wrong else 'PASS'} {name}{'  ' + figures if figures else ''}"]
        if wrong:
            lines += [f"     wrong: {w}" for w in wrong]
            for ran in told:
                lines += ["     | " + l for l in ran.text().splitlines()]
        with self._lock:
            self.failed += bool(wrong)
            print("\n".join(lines), flush=True)
        return not wrong

    def together(self, jobs, at_once):
        """Does what is given, so many at a time. A check that breaks is a check that fails: the others go on."""
        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            for done in [pool.submit(j) for j in jobs]:
                try:
                    done.result()
                except Exception as e:
                    self.check(f"a check broke: {e!r}", [repr(e)])

    def end(self, name, skipped=0):
        """The last line, and the exit status."""
        beside = f", {skipped} skipped" if skipped else ""
        print(f"{'FAIL' if self.failed else 'PASS'} {name}: {self.failed} failed{beside}, {time.time() - self.began:.0f} s")
        sys.exit(1 if self.failed else 0)


class Ran:
    def __init__(self, carried, folder, out, status, seconds):
        self.carried, self.folder, self.out, self.status, self.seconds = carried, folder, out, status, seconds
        self._report = None

    def read(self, name):
        try:
            with open(os.path.join(self.folder, name), errors="replace") as f:
                return f.read()
        except OSError:
            return ""

    def said(self):
        """The job's last line, as JSON; nothing where it said none."""
        for line in reversed(self.read("stdout").splitlines()):
            if line.startswith("{"):
                return json.loads(line)
        return {}

    def ask(self, *words):
        command = [self.carried.command, *words]
        return subprocess.run(command, env=self.carried.environment(), capture_output=True, text=True, timeout=120)

    def report(self):
        if self._report is None:
            asked = self.ask("report", self.out, "--format", "json")
            try:
                self._report = json.loads(asked.stdout)
            except ValueError:
                self._report = {"verdict": "no report", "reason": asked.stderr.strip(), "processes": []}
        return self._report

    def process(self, rank=None):
        for p in self.report()["processes"]:
            if rank is None or p["rank"] == rank:
                return p
        return {}

    def text(self):
        """The end of what the job and the report said."""
        errors = self.read("stderr").splitlines()[-40:]
        said = self.read("stdout").splitlines()[-6:]
        report = self.ask("report", self.out) if os.path.exists(self.out) else None
        report = (report.stdout + report.stderr).splitlines()[:60] if report else ["(no recording)"]
        return "\n".join([f"status {self.status}, {self.seconds:.0f} s", *said, *errors, "--", *report])


def whole(ran, drift=0):
    """What a recording that lost nothing lacks: a list of complaints."""
    wrong = [] if ran.status == 0 else [f"the job's status is {ran.status}"]
    report = ran.report()
    if not report["processes"]:
        wrong.append(f"nothing recorded: {report['reason']}")
    for p in report["processes"]:
        who = "" if p["rank"] is None else f"rank {p['rank']}: "
        if p["events_lost"] != 0 or p["damage"]:
            wrong.append(f"{who}lost {p['events_lost']}, damage {p['damage']}")
        if p["accounting_drift_bytes"] != drift and p["coverage"]["level"] != "none":
            wrong.append(f"{who}drift {p['accounting_drift_bytes']}, not {drift}")
    return wrong


def planted(script, marker="# LEAK"):
    with open(os.path.join(ROOT, script)) as f:
        return next(n for n, line in enumerate(f, 1) if line.rstrip().endswith(marker))


def names(finding, script):
    """Whether a finding's line is the one that was planted."""
    for site in finding["sites"]:
        line = site["your_line"] or {}
        if str(line.get("file", "")).endswith(os.path.basename(script)) and line.get("line") == planted(script):
            return True
    return False


def same_but_for_rounding(ours, pools):
    """The driver's pool counts stream-ordered blocks as they were asked for, we round each up to 512 bytes."""
    return ours is not None and 0 <= ours - pools <= max(64 << 10, pools // 1000)


def loud(process):
    return [f for f in process.get("findings", []) if f["severity"] in ("alert", "warning") and f["withdrawn_step"] is None]


def accused(process):
    """What is said to leak or to grow, however long until the card is full."""
    return [f for f in process.get("findings", []) if f["certainty"] in ("leak", "growing") and f["withdrawn_step"] is None]


def verdict_is(ran, verdict, script=None, kind=None, rank=None, bytes_per_step=None):
    """Complaints about a verdict; for a leak, about its only finding."""
    wrong = []
    if ran.report()["verdict"] != verdict:
        wrong.append(f"verdict {ran.report()['verdict']}, not {verdict}: {ran.report().get('reason')}")
    found = loud(ran.process(rank))
    if verdict == "leak":
        if [f["kind"] for f in found] != [kind]:
            wrong.append(f"findings {[f['kind'] for f in found]}, not {kind}")
        elif not names(found[0], script):
            wrong.append(f"the line named is {found[0]['sites'][:1]}")
        elif bytes_per_step and found[0]["bytes_per_step"] != bytes_per_step:
            wrong.append(f"{found[0]['bytes_per_step']} bytes a step, not {bytes_per_step}")
    elif found:
        wrong.append(f"findings {[f['kind'] for f in found]}")
    return wrong


def attributed(process, device, context):
    """What strandline attributes on a device, in bytes: torch's segments, other libraries, and a context's size."""
    d = next((d for d in process.get("devices", []) if d["index"] == device), {})
    torch, libraries = d.get("end_reserved_bytes", 0), sum(l["bytes"] for l in d.get("libraries") or [])
    return {"torch": torch, "libraries": libraries, "context": context, "sum": torch + libraries + context}


def measure_context(c):
    """Has the command measure what a context takes, so that reports know it; what it said."""
    asked = subprocess.run([c.command, "doctor", "--context"], env=c.environment(), capture_output=True, text=True, timeout=300)
    return (asked.stdout + asked.stderr).strip()


def own_context(process, device):
    """What the report itself says that a context takes on a device; nothing where it was not measured."""
    d = next((d for d in process.get("devices", []) if d["index"] == device), {})
    return (d.get("context") or {}).get("bytes")


def within(parts, used, share=0.02):
    """A figure and complaints: how far what is attributed is from what the device says is used."""
    off = (parts["sum"] - used) / used if used else 1.0
    figure = (
        f"used {used / MIB:.0f} MiB, attributed {parts['sum'] / MIB:.0f} ({100 * off:+.2f} %): torch {parts['torch'] / MIB:.0f}, "
        f"libraries {parts['libraries'] / MIB:.0f}, context {parts['context'] / MIB:.0f}"
    )
    return figure, [] if abs(off) <= share else [f"more than {100 * share:.0f} % off"]


def same_numbers(process, said, device):
    """Where the recording's peak and last reserved memory are not what PyTorch said itself."""
    d = next((d for d in process.get("devices", []) if d["index"] == device), {})
    ours = {"peak": d.get("peak_allocated_bytes"), "reserved": d.get("end_reserved_bytes")}
    return [f"{k} {v}, PyTorch says {said.get(k)}" for k, v in ours.items() if v != said.get(k)]
