"""Two Ray workers on one machine, of which one leaks: it is the one that is named, with its line, however Ray starts recorded workers.

    ray_leak.py STRANDLINE      with a Python that has ray, and torch on the simulated device. Exit status 1 where it is not so.
"""

import glob
import json
import os
import subprocess
import sys
import tempfile


def train():
    """The job: the workers' environment is in WORKERS."""
    import ray

    @ray.remote(num_gpus=1)
    class Trainer:
        def train(self, leaks):
            import torch

            model = torch.nn.Linear(512, 512).cuda()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
            kept = []
            for step in range(30):
                y = model(torch.ones(512, 512, device="cuda"))
                y.sum().backward()
                if leaks:
                    kept.append(y.detach().clone())
                optimizer.step()
                optimizer.zero_grad()

    ray.init(num_cpus=2, num_gpus=2, include_dashboard=False, runtime_env=json.loads(os.environ["WORKERS"]))
    ray.get([Trainer.remote().train.remote(leaks) for leaks in (False, True)])
    ray.shutdown()


def tried(strandline, name, workers):
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "WORKERS": json.dumps(workers(folder)), "STRANDLINE_SIM_DEVICES": "2", "RAY_USAGE_STATS_ENABLED": "0"}
        subprocess.run([sys.executable, os.path.abspath(__file__)], cwd=folder, env=env, check=True)
        recordings = glob.glob(os.path.join(folder, "strandline/**/*.strand"), recursive=True)
        said = [json.loads(subprocess.run([strandline, "report", "--format", "json", r], capture_output=True).stdout) for r in recordings]
        grows = [[f["sites"][0]["your_line"] for f in s["processes"][0]["findings"] if f["certainty"] in ("leak", "growing")] for s in said]
        lines = sorted([open(l["file"]).read().splitlines()[l["line"] - 1].strip() for l in one] for one in grows)
        good = lines == [[], ["kept.append(y.detach().clone())"]]
        print("ok  " if good else "BAD ", f"{name}: lines that grow, by worker: {lines}", flush=True)
        return good


if "WORKERS" in os.environ:
    train()
else:
    command = os.path.abspath(sys.argv[1])
    made = lambda folder: subprocess.run([command, "env", "-o", folder + "/strandline", "--format", "ray"], capture_output=True, check=True).stdout
    good = [
        tried(command, "env_vars", lambda folder: json.loads(made(folder))),
        tried(command, "py_executable", lambda folder: {"py_executable": f"{command} run --quiet -- {sys.executable}"}),
    ]
    sys.exit(not all(good))
