#!/usr/bin/env python3
"""PyTorch's own tests, and those of libraries, bare and under the preload: the same outcome of each.

usage: pytorch_tests.py CARRY WORK [--modes none,python,both] [--shards N] [--jobs N] [--only EXPRESSION] [--seconds N] [--backwards] [--repeat N] [PART…]

Each PART is a file of tests with pytest's -k. Bare and every mode run side by side in shards; tests that take much of a card run when those have
ended, one process at a time. Tests that differ run again, alone, bare twice and recorded once, before they are called a difference. A test that
ends its process is "died", and the rest go on in a new one.
Exit status 1 where a test differs, or a part has none.
"""
import argparse
import concurrent.futures
import glob
import json
import os
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PARTS = {
    "cuda": ("test_cuda.py", ""), "expandable": ("test_cuda_expandable_segments.py", ""), "multigpu": ("test_cuda_multigpu.py", ""),
    "trace": ("test_cuda_trace.py", ""), "primary_ctx": ("test_cuda_primary_ctx.py", ""), "autograd": ("test_autograd.py", "cuda"),
    "optim": ("test_optim.py", "cuda"), "dataloader": ("test_dataloader.py", "cuda or pin or Pin"), "multiprocessing": ("test_multiprocessing.py", "cuda"),
    "spawn": ("test_multiprocessing_spawn.py", ""), "nn": ("test_nn.py", "cuda"), "modules": ("test_modules.py", "cuda"), "nccl": ("distributed/test_c10d_nccl.py", ""),
}
# Tests of libraries, of the versions that the card machine has: folder below CARRY, files, pytest's -k. Those that need a network fail bare as well.
LIBRARIES = {
    "cupy": ("cupy/tests", "cupy_tests/cuda_tests", "not cutensor and not nccl"),
    "cupy-core": ("cupy/tests", "cupy_tests/core_tests/test_raw.py cupy_tests/core_tests/test_dlpack.py cupy_tests/core_tests/test_ndarray.py cupy_tests/core_tests/test_core.py", ""),
    "accelerate": ("accelerate/tests", ".", "not tracking and not examples and not tpu and not sagemaker"),
    "peft": ("peft", "tests/test_custom_models.py tests/test_initialization.py tests/test_low_level_api.py tests/test_trainable_tokens.py", ""),
}
PARTS.update({name: (files, expression) for name, (_, files, expression) in LIBRARIES.items()})
MODES = ["none", "python", "both"]
SHARDED = ("cuda", "autograd", "optim", "nn", "modules", "expandable", "nccl", *LIBRARIES)
# Tests that fill the card, or ask what is free on it: beside them others run out of memory, and beside others they fail.
FILLS = "oom or out_of_memory or memory_fraction or large or huge or overflow or workspace or max_split or garbage_collect or device_memory_used or mem_get_info"
NEEDED = ("expecttest", "hypothesis", "attrs", "sortedcontainers")
OF_LIBRARIES = ("parameterized", "datasets", "dill", "multiprocess", "diffusers", "importlib_metadata")
FILLING = ("cuda", "expandable", "multigpu")


def asked():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("carry")
    p.add_argument("work")
    p.add_argument("parts", nargs="*", default=[])
    p.add_argument("--modes", default=",".join(MODES))
    p.add_argument("--shards", type=int, default=2)
    p.add_argument("--jobs", type=int, default=12)
    p.add_argument("--only", default="")
    p.add_argument("--seconds", type=float, default=520)
    p.add_argument("--backwards", action="store_true", help="the last test of a part first: for those that an earlier run had no time for")
    p.add_argument("--repeat", type=int, default=0, help="all tests of each part so many times bare and in each mode, at once, and their outcomes counted")
    p.add_argument("--limit", type=float, default=500, help="seconds for a shard")
    args = p.parse_intermixed_args()
    if set(args.parts) - set(PARTS):
        p.error(f"no such part: {' '.join(sorted(set(args.parts) - set(PARTS)))}; there are {' '.join(PARTS)}")
    if set(args.modes.split(",")) - set(MODES):
        p.error(f"no such mode: {args.modes}; there are {' '.join(MODES)}")
    return args


class Tests:
    def __init__(self, args):
        self.args, self.carry, self.work, self.began = args, os.path.abspath(args.carry), os.path.abspath(args.work), time.time()
        self.tests = os.path.join(self.carry, "pytorch-test")
        site = os.path.join(self.work, "site")
        wheels = [w for n in NEEDED for w in glob.glob(os.path.join(self.carry, "wheels", f"{n}-*.whl"))]
        if not os.path.isdir(self.tests) or len(wheels) < len(NEEDED):
            sys.exit(f"{self.carry}: no pytorch-test or not all of {' '.join(NEEDED)} in wheels: run tests/gpu/pytorch_fetch.sh {args.carry} where there is a network")
        wheels += [w for n in OF_LIBRARIES for w in glob.glob(os.path.join(self.carry, "wheels", f"{n}-*.whl"))]
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", site, *wheels], check=True)
        missing = [p for p in self.args.parts if not os.path.isdir(self.folder(p))]
        if missing:
            sys.exit(f"{self.carry}: no tests of {' '.join(missing)}: run tests/gpu/pytorch_fetch.sh {args.carry} where there is a network")
        self.path = os.pathsep.join([HERE, site, self.tests, os.path.join(self.tests, "distributed"), *filter(None, [os.environ.get("PYTHONPATH")])])

    def folder(self, part):
        """Where a part's tests run."""
        return os.path.join(self.carry, LIBRARIES[part][0]) if part in LIBRARIES else self.tests

    def left(self):
        return self.args.seconds - (time.time() - self.began)

    def shard(self, part, mode, shard, shards, only=None, tag="", fills=False):
        """One shard to its end, in as many processes as it takes; outcomes by test. `fills`: those tests that take much of the card, else those that do not."""
        folder = os.path.join(self.work, part, f"{mode}{tag}-{shard}")
        os.makedirs(folder, exist_ok=True)
        file, expression = PARTS[part]
        said = os.path.join(folder, "outcomes")
        env = {k: v for k, v in os.environ.items() if not k.startswith("STRANDLINE_") or k.startswith("STRANDLINE_SIM")}
        env.update(
            PYTHONPATH=self.path, PYTORCH_OUTCOMES=said, PYTORCH_SHARD=f"{shard}/{shards}", PYTORCH_BACKWARDS=str(int(self.args.backwards)), PYTHONDONTWRITEBYTECODE="1", TMPDIR=folder, OMP_NUM_THREADS="2",
            STRANDLINE_CACHE=os.path.join(self.work, "cache"), NCCL_NVLS_ENABLE="0", TORCH_SYMM_MEM_DISABLE_MULTICAST="1", NVSHMEM_DISABLE_NVLS="1",
            DISTRIBUTED_TESTS_DEFAULT_TIMEOUT="100", HF_HUB_OFFLINE="1", CUPY_CACHE_DIR=os.path.join(folder, "cupy"),
        )
        # Tests are named as seen from the folder that they run in, so that they can be asked for by that name.
        words = [sys.executable, "-m", "pytest", "-q", "--rootdir", self.folder(part), "--noconftest", "-p", "pytorch_outcomes", "-p", "no:cacheprovider", "-p", "no:randomly", "--no-header", "--tb=line"]
        if only:
            words += only
        else:
            which = "" if part not in FILLING else FILLS if fills else f"not ({FILLS})"
            both = " and ".join(f"({e})" for e in (expression, self.args.only, which) if e)
            words += [*file.split(), *(["-k", both] if both else [])]
        ended = "nothing ran"
        for turn in range(12):
            before = self.read(said)
            recorded = [] if mode == "bare" else [os.path.join(self.carry, "strandline"), "run", "-o", os.path.join(folder, f"recording{turn}"), "--stacks", mode, "--"]
            with open(os.path.join(folder, f"text{turn}"), "w") as out:
                job = subprocess.Popen([*recorded, *words], cwd=self.folder(part), env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
                try:
                    ended = job.wait(max(5, min(self.args.limit, self.left())))
                except subprocess.TimeoutExpired:
                    ended = "time"
                try:
                    os.killpg(job.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                job.wait()
            now = self.read(said)
            last = [n for n, o in now.items() if o == "begun"]
            # Where the time was up, the test that was under way has no outcome; where the process died, that is its outcome.
            for n in last:
                with open(said, "a") as f:
                    f.write(f"{'no time' if ended == 'time' else 'died'}\t{n}\n")
            if ended == "time" or not last or now == before:
                break
        return self.read(said), ended

    @staticmethod
    def read(path):
        found = {}
        if os.path.exists(path):
            with open(path) as f:
                for line in f:
                    outcome, _, node = line.rstrip("\n").partition("\t")
                    if found.get(node) not in ("failed", "died"):
                        found[node] = outcome
        return found

    def part(self, pool, part, modes):
        """Outcomes of a part in every mode, and how its processes ended."""
        n = self.args.shards if part in SHARDED else 1
        jobs = {(m, k): pool.submit(self.shard, part, m, k, n) for m in modes for k in range(n)}
        return part, jobs

    def again(self, part, modes, names):
        """Which of these differ still when nothing else runs: bare twice, recorded once. One that did not run again differs; for one that had no time
        nobody knows, which is printed."""
        only, differ = sorted(names), {}
        bare = [self.shard(part, "bare", 0, 1, only, f"-again{k}")[0] for k in (1, 2)]
        for mode in modes:
            ours = self.shard(part, mode, 0, 1, only, "-again")[0]
            for n in only:
                known = {b.get(n) for b in bare} - {"no time"}
                if not known or ours.get(n) == "no time":
                    print(f"     {part} {mode}: no time to run {n} again")
                elif ours.get(n) is None or ours.get(n) not in known:
                    differ[n] = {**differ.get(n, {}), "bare": sorted(map(str, known)), mode: ours.get(n)}
        return differ


def count(outcomes):
    said = {}
    for o in outcomes.values():
        said[o] = said.get(o, 0) + 1
    return " ".join(f"{o} {n}" for o, n in sorted(said.items())) or "none ran"


def repeated(tests, parts, modes, times):
    """How often each test ends how, bare and in each mode: for those whose outcome varies from run to run."""
    with concurrent.futures.ThreadPoolExecutor(tests.args.jobs) as pool:
        for part in parts:
            jobs = [(m, pool.submit(tests.shard, part, m, 0, 1, tag=f"-{k}")) for k in range(times) for m in modes]
            found = {}
            for mode, job in jobs:
                for n, o in job.result()[0].items():
                    found.setdefault(n, {}).setdefault(mode, []).append(o)
            for n, of in sorted(found.items()):
                print(f"{part} {n.split('::')[-1]}: " + "; ".join(f"{m} {count(dict(enumerate(of.get(m, []))))}" for m in modes), flush=True)


def main():
    args = asked()
    tests, modes, all_differ, kept = Tests(args), args.modes.split(","), {}, {}
    if args.repeat:
        return repeated(tests, args.parts, ["bare", *modes], args.repeat)
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        begun = [tests.part(pool, p, ["bare", *modes]) for p in args.parts or [p for p in PARTS if p not in LIBRARIES]]
        for part, jobs in begun:
            outcomes = {}
            for (mode, _), job in jobs.items():
                found, ended = job.result()
                outcomes.setdefault(mode, {}).update(found)
                if ended not in (0, 1, 5):
                    print(f"     {part} {mode}: a process ended with {ended}")
            kept[part] = outcomes
    for part, mode in [(p, m) for p in kept if p in FILLING for m in ["bare", *modes]]:
        found, ended = tests.shard(part, mode, 0, 1, tag="-fills", fills=True)
        kept[part][mode].update(found)
        if ended not in (0, 1, 5):
            print(f"     {part} {mode}, tests that fill the card: a process ended with {ended}")
    for part, outcomes in kept.items():
        bare = outcomes["bare"]
        print(f"{part:16} bare    {count(bare)}")
        for mode in modes:
            ours = outcomes[mode]
            other = {n for n in {*bare, *ours} if bare.get(n) != ours.get(n) and "no time" not in (bare.get(n), ours.get(n))}
            # A side that ran out of time lacks tests that it would have had.
            if "no time" in {*bare.values(), *ours.values()}:
                other = {n for n in other if n in bare and n in ours}
            outcomes.setdefault("differ", set()).update(other)
            print(f"{'':16} {mode:7} {count(ours)}; {len(other)} other than bare")
        if outcomes.get("differ"):
            all_differ.update(tests.again(part, modes, outcomes["differ"]) if tests.left() > 30 else {n: {m: outcomes[m].get(n) for m in ["bare", *modes]} for n in outcomes["differ"]})
        failed = sorted(n.split("::", 1)[-1] for n, o in bare.items() if o in ("failed", "died"))
        print(f"{'':16} fail bare: {', '.join(failed)[:600] or 'none'}", flush=True)
    for n, sides in sorted(all_differ.items()):
        print(f"DIFFERS {n}: {sides}"[:300])
    with open(os.path.join(tests.work, "outcomes.json"), "w") as f:
        json.dump({p: {m: o for m, o in k.items() if m != "differ"} for p, k in kept.items()}, f)
    with open(os.path.join(tests.tests, "VERSION")) as f:
        version = f.read().strip()
    empty = [p for p, k in kept.items() if not k["bare"]]
    if empty:
        print(f"NOT RUN: {', '.join(empty)}: no test was found, or none could be imported")
    print(f"{'FAIL' if all_differ or empty else 'PASS'} PyTorch's tests ({version}): {len(all_differ)} differ, {sum(len(k['bare']) for k in kept.values())} tests bare, {time.time() - tests.began:.0f} s")
    return 1 if all_differ or empty else 0


if __name__ == "__main__":
    sys.exit(main())
