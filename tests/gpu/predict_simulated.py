#!/usr/bin/env python3
"""What `strandline predict` and `strandline fit` say of the models of tests/gpu/models.py, without a GPU; tests/gpu/predict.sh compares it on one.

usage: predict_simulated.py SIMULATED.json STRANDLINE [MODEL…] [--no-fit]
       predict_simulated.py RANKS.json STRANDLINE --ranks      two ranks of DDP and of FSDP2, for the part `predicted` of tests/gpu/ranks.py

Needs peft and torchvision in the simulated GPU's Python. SIMULATED.json is written after each model; a model that is already in it is left as it is.
"""
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
MODES = {"default": {}, "expandable": {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}}
CARDS = ("24GiB", "40GiB", "60GiB", "80GiB")
# Steps of a run whose batch is searched: what is allocated does not change after the second.
FIT_STEPS = 4


def asked(words, env):
    """The JSON that the command ends with; None, with its last lines, where there is none."""
    told = subprocess.run(words, env={**os.environ, **env}, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    at = told.stdout.find("{\n")
    if at < 0:
        return {"failed": told.returncode, "said": (told.stdout + told.stderr)[-600:]}
    return json.loads(told.stdout[at:])


def predicted(strandline, name, env):
    told = asked([strandline, "predict", "--json", "--gpu", "h200", os.path.join(HERE, "models.py"), name], env)
    if "failed" in told:
        return told
    device = told["devices"][0]
    return {"allocated": device["peak_allocated_bytes"], "reserved": device["peak_reserved_bytes"], "used": told["needed_bytes"], "steps": told["steps"]}


def largest(strandline, name, values):
    """For each size of card the largest batch that is said to fit, and the next one."""
    cards = [word for card in CARDS for word in ("--gpu", card)]
    job = [os.path.join(HERE, "models.py"), name, "--steps", str(FIT_STEPS), "--batch", values.split("..")[0]]
    told = asked([strandline, "fit", "--json", *cards, "--vary", f"batch={values}", *job], {})
    if "failed" in told:
        return told
    varied = told["varied"][0]
    found = {c["name"]: {k: c[k] for k in ("outcome", "value", "does_not_fit")} for c in varied["cards"]}
    return found if found else {"failed": varied.get("failed"), "said": json.dumps(told)[-600:]}


def of_ranks(strandline, kind):
    """The peaks of each of two ranks, and what may be added to each where DDP's first buckets are still there."""
    with tempfile.TemporaryDirectory() as folder:
        job = ["torchrun", "--standalone", "--nproc-per-node", "2", os.path.join(os.path.dirname(HERE), "python/ranks.py"), kind, folder]
        told = asked([strandline, "predict", "--json", "--devices", "2", "--gpu", "h200", *job], {})
    if "failed" in told:
        return told
    beside = told["beside_bytes"]
    return [
        {"allocated": d["peak_allocated_bytes"], "reserved": d["peak_reserved_bytes"], "used": d["peak_reserved_bytes"] + beside, "buckets": d["first_buckets_bytes"]}
        for d in told["devices"]
    ]


def main():
    out, strandline, *names = [a for a in sys.argv[1:] if a not in ("--no-fit", "--ranks")]
    if "--ranks" in sys.argv:
        with open(out, "w") as f:
            json.dump({kind: of_ranks(strandline, kind) for kind in ("ddp", "fsdp")}, f, indent=1)
        return
    sys.path.insert(0, HERE)
    import models

    done = json.load(open(out)) if os.path.exists(out) else {}
    for name in names or models.MODELS:
        said = done.setdefault(name, {"batch": models.MODELS[name][1]})
        for mode, env in MODES.items():
            if mode not in said:
                said[mode] = predicted(strandline, name, env)
        if "fit" not in said and "--no-fit" not in sys.argv:
            said["fit"] = largest(strandline, name, models.MODELS[name][2])
        with open(out, "w") as f:
            json.dump(done, f, indent=1)
        print(name, json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
