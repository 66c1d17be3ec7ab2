#!/usr/bin/env python3
"""What lies in docs/deploy and docs/grafana is valid, and fits together and the command.

    manifests.py STRANDLINE [--promtool PROMTOOL] [--run PYTHON]

Needs kubernetes-validate (Kubernetes' own schemas, offline). PodMonitors are checked if cloudcoil-models-prometheus-operator is installed,
rules if there is a promtool. --run starts the Job's container as its manifest says: PYTHON is that of `strandline simulate --python`,
/recordings and /opt/strandline lie below a temporary folder, and as root it gets the manifest's user. Exit status 1 where something does not hold.
"""
import argparse
import glob
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request

import kubernetes_validate
import yaml

HERE = os.path.dirname(os.path.abspath(__file__))
DOCS = os.path.join(HERE, "../../docs")
KUBERNETES = os.path.join(DOCS, "deploy/kubernetes")
VERSIONS = ("1.29", "1.33", "1.37")  # native sidecars came with 1.29

p = argparse.ArgumentParser()
p.add_argument("strandline")
p.add_argument("--promtool")
p.add_argument("--run", metavar="PYTHON")
args = p.parse_args()


def manifests():
    for path in sorted(glob.glob(os.path.join(KUBERNETES, "*.yaml"))):
        for manifest in yaml.safe_load_all(open(path)):
            yield os.path.basename(path), manifest


def containers(manifest):
    pod = manifest["spec"]["template"]["spec"]
    return pod.get("initContainers", []) + pod["containers"]


def is_valid(name, manifest):
    if manifest["kind"] == "Kustomization":
        return "no schema"
    if manifest["apiVersion"].startswith("monitoring.coreos.com"):
        try:
            from cloudcoil.models.prometheus_operator import v1
        except ImportError:
            return "not checked: no cloudcoil-models-prometheus-operator"
        # What the model does not know is not in what it gives back.
        known = getattr(v1, manifest["kind"]).model_validate(manifest).model_dump(mode="json", by_alias=True, exclude_unset=True)
        assert known == manifest, f"{name}: {known}"
        return "valid"
    for version in VERSIONS:
        kubernetes_validate.validate(manifest, version, strict=True)
    return "valid for " + ", ".join(VERSIONS)


def options_are_the_commands(name, container):
    """Each option before `--` is one that the command takes, with its value: it is asked for help right after them."""
    words = container.get("command", []) + container.get("args", [])
    words = [w for w in words if w != "--help"]
    if len(words) < 2 or os.path.basename(words[0]) != "strandline":
        return
    options = words[1:words.index("--")] if "--" in words else words[1:]
    said = subprocess.run([args.strandline, *options, "--help"], capture_output=True, text=True)
    assert said.returncode == 0 and "Usage: strandline" in said.stdout, f"{name}: {options}: {said.stderr}"
    print(f"ok   {name}: strandline {' '.join(options)}")


def labels(expression):
    return set(re.findall(r"run\w*:strandline_\w+:\w+", expression))


def fit():
    """Ports, labels, volumes and names of rules are the ones that the others mean."""
    all_of_them = list(manifests())
    listed = {r for _, m in all_of_them if m["kind"] == "Kustomization" for r in m["resources"]}
    here = {name for name, m in all_of_them if m["kind"] != "Kustomization"}
    assert listed == here, f"kustomization.yaml lists {listed}, there is {here}"
    pods = [m for _, m in all_of_them if "template" in m.get("spec", {})]
    for monitor in (m for _, m in all_of_them if m["kind"] == "PodMonitor"):
        wanted = monitor["spec"]["selector"]["matchLabels"].items()
        meant = [m for m in pods if wanted <= m["spec"]["template"]["metadata"]["labels"].items()]
        assert meant, "no pod has the labels of the PodMonitor"
        for m in meant:
            ports = {p["name"] for c in containers(m) for p in c.get("ports", [])}
            ports = ports & {e["port"] for e in monitor["spec"]["podMetricsEndpoints"]}
            assert ports, f"{m['metadata']['name']} has no port that the PodMonitor names"
    for m in pods:
        volumes = {v["name"] for v in m["spec"]["template"]["spec"]["volumes"]}
        mounted = {v["name"] for c in containers(m) for v in c.get("volumeMounts", [])}
        assert volumes == mounted, f"{m['metadata']['name']}: {volumes ^ mounted}"
        for c in containers(m):
            served = re.search(r"--metrics=\S+:(\d+)", " ".join(c.get("args", [])))
            ports = {p["containerPort"] for p in c.get("ports", [])}
            assert not served or ports == {int(served[1])}, f"{c['name']} serves {served[0]} and names {ports}"
    rules = yaml.safe_load(open(os.path.join(DOCS, "grafana/fleet.yml")))
    recorded = {r["record"] for g in rules["groups"] for r in g["rules"] if "record" in r}
    board = json.load(open(os.path.join(DOCS, "grafana/fleet.json")))
    asked = set().union(*(labels(t["expr"]) for panel in board["panels"] for t in panel["targets"]))
    asked |= labels(board["templating"]["list"][1]["query"]["query"])
    asked |= set().union(*(labels(r["expr"]) for g in rules["groups"] for r in g["rules"]))
    assert asked | {"run:strandline_events_lost:increase10m"} == recorded, f"asked and not recorded, or recorded for nobody: {asked ^ recorded}"
    print("ok   ports, labels, volumes and names of rules fit")


def run():
    """The Job's container, on a simulated GPU."""
    [job] = (m for _, m in manifests() if m["kind"] == "Job")
    pod = job["spec"]["template"]["spec"]
    [container] = pod["containers"]
    with tempfile.TemporaryDirectory(prefix="strandline-pod-") as root:
        os.chmod(root, 0o755)
        for folder, mode in (("recordings", 0o1777), ("tmp", 0o1777), ("opt", 0o755)):
            os.mkdir(os.path.join(root, folder))
            os.chmod(os.path.join(root, folder), mode)
        os.makedirs(os.path.join(root, "opt/strandline"))
        # As the init container does.
        subprocess.run(["cp", args.strandline, os.path.join(root, "opt/strandline/strandline")], check=True)
        fields = {"metadata.namespace": "training", "metadata.name": "train-x7k2p"}
        values = {e["name"]: e.get("value") or fields[e["valueFrom"]["fieldRef"]["fieldPath"]] for e in container["env"]}
        words = [re.sub(r"\$\((\w+)\)", lambda m: values[m[1]], w) for w in container["command"] + container["args"]]
        words = [re.sub(r"(^|=)/(recordings|opt/strandline)", rf"\g<1>{root}/\2", w) for w in words]
        at = words.index("--")
        assert words[at + 1:] == ["python", "train.py"], words
        script = os.path.join(root, "train.py")
        open(script, "w").write(LEAK)
        words[at + 1:] = [args.run, script]
        env = {**os.environ, **values, "XDG_CACHE_HOME": root + values["XDG_CACHE_HOME"], "HOME": root + "/tmp", "STRANDLINE_SIM_TOTAL": "4GiB"}
        user = pod["securityContext"]["runAsUser"] if os.geteuid() == 0 else None
        process = subprocess.Popen(words, env=env, cwd=root + "/tmp", user=user, group=user, extra_groups=[] if user else None, stderr=subprocess.PIPE, text=True)
        url = f"http://127.0.0.1:{container['ports'][0]['containerPort']}/metrics"
        leaks = []
        while not leaks and process.poll() is None:
            time.sleep(0.5)
            try:
                text = urllib.request.urlopen(url, timeout=5).read().decode()
            except OSError:
                continue
            leaks = re.findall(r'^strandline_leak_bytes\{.*site="([^"]*)".*\} (\d+)$', text, re.M)
        _, said = process.communicate()
        assert process.returncode == 0 and leaks and leaks[0][0].endswith("train.py:8"), f"{words}: {leaks}\n{said}"
        [folder] = os.listdir(os.path.join(root, "recordings"))
        assert folder == "training-train-x7k2p" and re.search("GROWING|LEAK", said), (folder, said)
        print(f"ok   {' '.join(words).replace(root, '')} as user {user}: {leaks[0]}, recordings/{folder}")


LEAK = """\
import time, torch
model = torch.nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
kept = []
for step in range(40):
    y = model(torch.ones(256, 1024, device="cuda"))
    y.sum().backward()
    kept.append(y.detach().clone())
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.2)
"""

try:
    for name, manifest in manifests():
        print(f"ok   {name}: {manifest['kind']}: {is_valid(name, manifest)}")
        if "template" in manifest.get("spec", {}):
            for container in containers(manifest):
                options_are_the_commands(name, container)
    fit()
    for path in glob.glob(os.path.join(DOCS, "deploy/**/*.sh"), recursive=True):
        subprocess.run(["sh", "-n", path], check=True)
    if args.promtool:
        for words in (["check", "rules"], glob.glob(os.path.join(DOCS, "grafana/*.yml"))), (["test", "rules"], glob.glob(os.path.join(HERE, "*_test.yml"))):
            done = subprocess.run([args.promtool, *words[0], *words[1]], capture_output=True, text=True)
            assert done.returncode == 0, done.stdout + done.stderr
        print("ok   promtool takes the rules, and each fires where it must")
    if args.run:
        run()
except (AssertionError, kubernetes_validate.ValidationError, subprocess.CalledProcessError) as e:
    sys.exit(f"BAD  {e}")
