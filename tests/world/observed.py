"""One run of one job, bare or recorded, in a folder of its own: what of it can be compared."""
import hashlib
import json
import os
import re
import signal
import subprocess
import time

HERE = os.path.dirname(os.path.abspath(__file__))
# What a program prints of its own speed: no two runs agree on it.
TIMED = re.compile(
    r"((?:['\"]?\w*(?:runtime|_per_second|seconds|time|elapsed)\w*['\"]?)\s*[:=]\s*)['\"]?[-+.\deE]+['\"]?|\b[\d.]+\s?(?:ms|us|µs|s/it|it/s|s|sec|seconds)\b|\d\d:\d\d:\d\d[,.]\d+"
)
ADDRESS = re.compile(r"0x[0-9a-f]{6,}")


class OutOfTime(Exception):
    """The whole run's time was up while a job ran: nothing is known of that job."""


class Setting:
    """What all runs share: the Python, the command, where results go, and whether the device is simulated."""

    def __init__(self, python, command, out, simulated=False, path="", wheels="", threads=2, keep=False, end=float("inf")):
        self.python, self.command, self.out = python, command and os.path.abspath(command), os.path.abspath(out)
        self.simulated, self.path, self.wheels, self.threads, self.keep, self.end = simulated, path, wheels, threads, keep, end

    def beside(self, job=None):
        """The folders of packages beside the Python's own that a job is given: those that it needs, since every package costs others' imports."""
        if not self.path or job and not job.get("beside", True):
            return []
        apart = os.path.join(self.path, "apart")
        names = [job["apart"]] if job and "apart" in job else sorted(os.listdir(apart)) if not job and os.path.isdir(apart) else []
        return [*(os.path.join(apart, n) for n in names), self.path]

    def environment(self, folder, job):
        env = {k: v for k, v in os.environ.items() if not k.startswith("STRANDLINE_") or k.startswith("STRANDLINE_SIM")}
        env.pop("LD_PRELOAD", None)
        for name in ("tmp", "cache"):
            os.makedirs(os.path.join(folder, name), exist_ok=True)
        cache = os.path.join(folder, "cache")
        env.update(
            TMPDIR=os.path.join(folder, "tmp"), HF_HOME=cache, TRITON_CACHE_DIR=os.path.join(cache, "triton"), TORCHINDUCTOR_CACHE_DIR=os.path.join(cache, "inductor"),
            MPLCONFIGDIR=cache, CUPY_CACHE_DIR=cache, NUMBA_CACHE_DIR=cache, HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false",
            WANDB_MODE="disabled", PYTHONHASHSEED="0", PYTHONUNBUFFERED="1", PYTHONDONTWRITEBYTECODE="1", OMP_NUM_THREADS=str(self.threads), MPLBACKEND="Agg",
            # NVLink multicast is left off wherever NCCL could choose it, as in tests/gpu/carried.py.
            NCCL_NVLS_ENABLE="0", TORCH_SYMM_MEM_DISABLE_MULTICAST="1", NVSHMEM_DISABLE_NVLS="1", TF_CPP_MIN_LOG_LEVEL="3",
        )
        env["PYTHONPATH"] = os.pathsep.join([os.path.join(HERE, "jobs"), *self.beside(job)])
        if self.simulated:
            env["WORLD_SIMULATED"] = "1"
        if self.wheels:
            env["WORLD_TRL"] = os.path.join(os.path.abspath(self.wheels), "trl-1.16*.whl")
        return env


def words(setting, job):
    script, *arguments = job["run"]
    return [setting.python, os.path.join(HERE, "jobs", script), *arguments]


class Run:
    """A run that has ended."""

    def __init__(self, setting, job, tag, mode=None):
        """`mode`: the words of `strandline run` that it is recorded with; None is bare."""
        self.tag, self.folder = tag, os.path.join(setting.out, "runs", job["name"], tag)
        work = os.path.join(self.folder, "work")
        os.makedirs(work, exist_ok=True)
        env, command = setting.environment(self.folder, job), words(setting, job)
        env.update(job.get("env", {}))
        self.recording = None
        if mode is not None:
            self.recording = os.path.join(self.folder, "recording")
            env["STRANDLINE_CACHE"] = os.path.join(setting.out, "cache")
            command = [setting.command, "run", "-o", self.recording, *mode, "--", *command]
        began = time.monotonic()
        with open(os.path.join(self.folder, "stdout"), "wb") as o, open(os.path.join(self.folder, "stderr"), "wb") as e:
            process = subprocess.Popen(command, cwd=work, env=env, stdin=subprocess.DEVNULL, stdout=o, stderr=e, start_new_session=True)
            try:
                status = process.wait(max(1, min(job["limit"], setting.end - began)))
                # `run` says a signal as a shell does.
                self.status = status if status >= 0 else 128 - status
            except subprocess.TimeoutExpired:
                self.status = f"no end after {job['limit']} s"
            # What a job leaves behind does not outlive it here.
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        self.seconds = time.monotonic() - began
        if time.monotonic() >= setting.end:
            raise OutOfTime
        self._read(work)

    def _text(self, name):
        with open(os.path.join(self.folder, name), errors="replace") as f:
            return f.read()

    def _read(self, work):
        lines, self.said = self._text("stdout").splitlines(), {}
        for n in range(len(lines) - 1, -1, -1):
            if lines[n].startswith('{"losses":') or lines[n].startswith('{') and '"losses":' in lines[n]:
                try:
                    self.said = json.loads(lines.pop(n))
                except ValueError:
                    continue
                break
        self.lines = [self.plain(line) for line in lines]
        self.losses, self.peak = self.said.get("losses"), self.said.get("peak")
        self.files = {}
        for folder, _, names in os.walk(work):
            for name in names:
                path = os.path.join(folder, name)
                if os.path.isfile(path) and not os.path.islink(path):
                    with open(path, "rb") as f:
                        self.files[os.path.relpath(path, work)] = hashlib.file_digest(f, "sha256").hexdigest()[:16]

    def plain(self, line):
        """A line without the names of this run's own folder, without addresses, and without times."""
        line = ADDRESS.sub("0x…", line.replace(self.folder, "@"))
        return TIMED.sub(lambda m: (m.group(1) or "") + "…", line)

    def is_torchs_abort(self):
        """PyTorch's own abort where a job ends right after its last backward: its autograd thread waits for the GIL of a Python that ends. One
        of several bare runs ends so."""
        return self.status == 134 and "terminate called without an active exception" in self._text("stderr")

    def why(self):
        """The last lines that say why it failed, ours apart."""
        lines = [l for l in self._text("stderr").splitlines() if l.strip() and not l.startswith(("strandline:", "  "))]
        return " / ".join(lines[-2:])[-300:]

    def ours(self):
        """What the preload and the command said themselves, first lines."""
        return [l for l in self._text("stderr").splitlines() if l.startswith("strandline:")][:4]

    def judged(self, setting):
        """The recording's verdict, and whether it is whole."""
        asked = subprocess.run(
            [setting.command, "report", self.recording, "--format", "json"], capture_output=True, text=True, timeout=120,
            env={**os.environ, "STRANDLINE_CACHE": os.path.join(setting.out, "cache")},
        )
        try:
            report = json.loads(asked.stdout)
        except ValueError:
            return {"verdict": "none", "reason": asked.stderr.strip()[:200], "processes": 0, "lost": 0, "drift": 0, "damage": 0, "steps": None, "peak": None, "findings": []}
        processes = report["processes"]
        findings = [
            {"kind": f["kind"], "certainty": f.get("certainty"), "severity": f["severity"], "bytes_per_step": f.get("bytes_per_step"),
             "line": ((f.get("sites") or [{}])[0].get("your_line") or {}).get("line"), "file": ((f.get("sites") or [{}])[0].get("your_line") or {}).get("file")}
            for p in processes for f in p.get("findings", []) if f.get("withdrawn_step") is None
        ]
        peaks = [d.get("peak_allocated_bytes") for p in processes for d in p.get("devices", [])]
        return {
            "verdict": report["verdict"], "reason": report.get("reason"), "processes": len(processes), "lost": sum(p.get("events_lost") or 0 for p in processes),
            "drift": sum(abs(p.get("accounting_drift_bytes") or 0) for p in processes), "damage": sum(len(p.get("damage") or []) for p in processes),
            "steps": processes[0].get("steps") if len(processes) == 1 else None, "peak": max([p for p in peaks if p is not None], default=None), "findings": findings[:4],
        }
