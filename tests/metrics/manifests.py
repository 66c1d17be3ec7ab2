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


def manifests(folder):
    """What `kubectl apply -k` makes of a folder, as far as these files go: resources and JSON patches."""
    kustomization = yaml.safe_load(open(os.path.join(KUBERNETES, folder, "kustomization.yaml")))
    found = []
    for name in kustomization["resources"]:
        path = os.path.normpath(os.path.join(folder, name))
        at = os.path.join(KUBERNETES, path)
        found += manifests(path) if os.path.isdir(at) else [(path, m) for m in yaml.safe_load_all(open(at))]
    for patch in kustomization.get("patches", []):
        [manifest] = (m for _, m in found if (m["kind"], m["metadata"]["name"]) == (patch["target"]["kind"], patch["target"]["name"]))
        for op in yaml.safe_load(patch["patch"]):
            *way, last = op["path"].strip("/").split("/")
            place = manifest
            for key in way:
                place = place[int(key) if isinstance(place, list) else key]
            last = int(last) if isinstance(place, list) else last
            assert op["op"] == "add" or (last in place if isinstance(place, dict) else last < len(place)), f"{folder}: nothing at {op['path']}"
            assert op["op"] != "test" or place[last] == op["value"], f"{folder}: {op['path']} is {place[last]}"
            if op["op"] == "remove":
                del place[last]
            elif op["op"] == "add":
                place[last] = op["value"]
    made = {f"{folder}/{r}" for r in kustomization["resources"]} | {f"{folder}/kustomization.yaml"}
    there = {os.path.relpath(f, KUBERNETES) for f in glob.glob(os.path.join(KUBERNETES, folder, "*.yaml"))}
    assert there <= made, f"not in the kustomization: {there - made}"
    return found


def containers(manifest):
    pod = manifest["spec"]["template"]["spec"]
    return pod.get("initContainers", []) + pod["containers"]


def is_valid(name, manifest):
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


def fit(all_of_them):
    """Ports, labels and volumes are the ones that the others mean."""
    pods = [m for _, m in all_of_them if "template" in m.get("spec", {})]
    monitors = [m for _, m in all_of_them if m["kind"] == "PodMonitor"]
    for monitor in monitors:
        wanted = monitor["spec"]["selector"]["matchLabels"].items()
        meant = [m for m in pods if wanted <= m["spec"]["template"]["metadata"].get("labels", {}).items()]
        assert len(meant) == 1, f"of {[m['metadata']['name'] for m in meant]} one is to be asked: metrics of both would count twice"
        ports = {p["name"] for c in containers(meant[0]) for p in c.get("ports", [])}
        assert ports & {e["port"] for e in monitor["spec"]["podMetricsEndpoints"]}, f"{ports}: none is the PodMonitor's"
    for m in pods:
        volumes = {v["name"] for v in m["spec"]["template"]["spec"]["volumes"]}
        mounted = {v["name"] for c in containers(m) for v in c.get("volumeMounts", [])}
        assert volumes == mounted, f"{m['metadata']['name']}: {volumes ^ mounted}"
        for c in containers(m):
            served = re.search(r"(?:--metrics|--web.listen-address)=\S*:(\d+)", " ".join(c.get("args", [])))
            ports = {p["containerPort"] for p in c.get("ports", [])}
            assert ports == ({int(served[1])} if served else set()), f"{c['name']} serves {served and served[0]} and names {ports}"
    print("ok   ports, labels and volumes fit")


def rules_fit():
    """The dashboard asks for what the rules record."""
    rules = yaml.safe_load(open(os.path.join(DOCS, "grafana/fleet.yml")))
    recorded = {r["record"] for g in rules["groups"] for r in g["rules"] if "record" in r}
    board = json.load(open(os.path.join(DOCS, "grafana/fleet.json")))
    asked = set().union(*(labels(t["expr"]) for panel in board["panels"] for t in panel["targets"]))
    asked |= labels(board["templating"]["list"][1]["query"]["query"])
    asked |= set().union(*(labels(r["expr"]) for g in rules["groups"] for r in g["rules"]))
    assert asked | {"run:strandline_events_lost:increase10m"} == recorded, f"asked and not recorded, or recorded for nobody: {asked ^ recorded}"
    print("ok   the rules record what the dashboard asks for")


def run(all_of_them):
    """The Job's container on a simulated GPU, and the DaemonSet's if there is one."""
    [job] = (m for _, m in all_of_them if m["kind"] == "Job")
    pod = job["spec"]["template"]["spec"]
    [container] = pod["containers"]
    user = pod["securityContext"]["runAsUser"] if os.geteuid() == 0 else None
    as_user = {"user": user, "group": user, "extra_groups": []} if user else {}
    with tempfile.TemporaryDirectory(prefix="strandline-pod-") as root:
        os.chmod(root, 0o755)
        for folder in ("recordings", "tmp", "figures", "opt/strandline", "etc/strandline"):
            os.makedirs(os.path.join(root, folder))
            os.chmod(os.path.join(root, folder), 0o1777)
        # As the init container and the ConfigMap do.
        subprocess.run(["cp", args.strandline, os.path.join(root, "opt/strandline/strandline")], check=True)
        subprocess.run(["cp", os.path.join(KUBERNETES, "nodes/watch-node.sh"), os.path.join(root, "etc/strandline")], check=True)
        below = lambda words: [re.sub(r"(^|=)/(recordings|figures|opt/strandline|etc/strandline)", rf"\g<1>{root}/\2", w) for w in words]
        fields = {"metadata.namespace": "training", "metadata.name": "train-x7k2p", "metadata.labels['batch.kubernetes.io/job-name']": "train"}
        values = {e["name"]: e.get("value") or fields[e["valueFrom"]["fieldRef"]["fieldPath"]] for e in container["env"]}
        words = below(re.sub(r"\$\((\w+)\)", lambda m: values[m[1]], w) for w in container["command"] + container["args"])
        at = words.index("--")
        assert words[at + 1:] == ["python", "train.py"], words
        script = os.path.join(root, "train.py")
        open(script, "w").write(LEAK)
        words[at + 1:] = [args.run, script]
        path = os.path.join(root, "opt/strandline") + ":" + os.environ["PATH"]
        env = {**os.environ, **values, "XDG_CACHE_HOME": root + values["XDG_CACHE_HOME"], "HOME": root + "/tmp", "PATH": path, "STRANDLINE_SIM_TOTAL": "4GiB"}
        more = {"env": env, "cwd": root + "/tmp", "stderr": subprocess.PIPE, "text": True, **as_user}
        sets = [m["spec"]["template"]["spec"]["containers"][0] for _, m in all_of_them if m["kind"] == "DaemonSet"]
        watchers = [subprocess.Popen(below(c["command"]), **more) for c in sets]
        process = subprocess.Popen(words, **more)
        figures = os.path.join(root, "figures/training-train,train-x7k2p.prom")
        leaks = []
        while not leaks and process.poll() is None:
            time.sleep(0.5)
            try:
                where = open(figures) if sets else urllib.request.urlopen(f"http://127.0.0.1:{container['ports'][0]['containerPort']}/metrics", timeout=5)
                text = where.read()
            except OSError:
                continue
            leaks = re.findall(r"^strandline_leak_bytes\{.*train\.py:8.*$", text if sets else text.decode(), re.M)
        _, said = process.communicate()
        for watcher in watchers:
            while os.path.exists(figures):
                time.sleep(0.5)
            watcher.terminate()
            assert watcher.communicate()[1] and watcher.returncode == 0, watcher.returncode
        assert process.returncode == 0 and leaks and re.search("GROWING|LEAK", said), f"{words}: {leaks}\n{said}"
        assert not sets or leaks[0].startswith('strandline_leak_bytes{run="training-train",folder="train-x7k2p",'), leaks
        assert os.listdir(os.path.join(root, "recordings/training-train/train-x7k2p")), "no recording"
        print(f"ok   {' '.join(words).replace(root, '')}, as user {user}{', watched by the DaemonSet' * len(sets)}: {leaks[0]}")


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
    bases = {folder: manifests(folder) for folder in ("pods", "nodes")}
    for folder, all_of_them in bases.items():
        for name, manifest in all_of_them:
            print(f"ok   {folder}: {name}: {is_valid(name, manifest)}")
            if "template" in manifest.get("spec", {}):
                for container in containers(manifest):
                    options_are_the_commands(name, container)
        fit(all_of_them)
    rules_fit()
    for path in glob.glob(os.path.join(DOCS, "deploy/**/*.sh"), recursive=True):
        subprocess.run(["sh", "-n", path], check=True)
    if args.promtool:
        for words in (["check", "rules"], glob.glob(os.path.join(DOCS, "grafana/*.yml"))), (["test", "rules"], glob.glob(os.path.join(HERE, "*_test.yml"))):
            done = subprocess.run([args.promtool, *words[0], *words[1]], capture_output=True, text=True)
            assert done.returncode == 0, done.stdout + done.stderr
        print("ok   promtool takes the rules, and each fires where it must")
    if args.run:
        for all_of_them in bases.values():
            run(all_of_them)
except (AssertionError, kubernetes_validate.ValidationError, subprocess.CalledProcessError) as e:
    sys.exit(f"BAD  {e}")
