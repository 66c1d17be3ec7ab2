#!/usr/bin/env python3
"""A job that leaks, scraped by a real Prometheus (`prometheus` and `promtool` in the PATH, as in Debian's package).

    scrape.py --strandline BIN --python PYTHON      PYTHON has torch (strandline simulate --python)

Checked: what Prometheus stored is what was served; every expression of the dashboard returns data; the rules for a leak and for a
card that is full soon fire, the other two do not (their own test: rules_test.yml). Exit status 1 where one does not hold.
"""
import argparse
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
GRAFANA = os.path.join(HERE, "../../docs/grafana")
PATIENCE = 100

p = argparse.ArgumentParser()
p.add_argument("--strandline", required=True)
p.add_argument("--python", required=True)
args = p.parse_args()
here = tempfile.mkdtemp(prefix="strandline-scrape-")
started = []


def port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def get(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


def until(what, look):
    """What `look` returns, once it is something."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            found = look()
        except OSError:
            found = None
        if found:
            return found
        time.sleep(0.2)
    raise SystemExit(f"BAD  {what}: not within {PATIENCE} s")


def start(words, name, **more):
    log = open(os.path.join(here, name + ".txt"), "w")
    started.append(subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=here, **more))
    return started[-1]


def ask(expression):
    answer = json.loads(get(f"{prometheus}/api/v1/query?query={urllib.parse.quote(expression)}"))
    assert answer["status"] == "success", answer
    return answer["data"]["result"]


def run():
    global prometheus
    ours, theirs = port(), port()
    prometheus = f"http://127.0.0.1:{theirs}"
    # As shipped, but for the waits: a page after a minute is right for people and long for a test.
    rules = open(os.path.join(GRAFANA, "rules.yml")).read()
    open(os.path.join(here, "rules.yml"), "w").write(re.sub(r"for: \d+m", "for: 1s", rules))
    open(os.path.join(here, "prometheus.yml"), "w").write(f"""
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [rules.yml]
scrape_configs: [{{job_name: strandline, static_configs: [{{targets: ["127.0.0.1:{ours}"]}}]}}]
""")
    server = ["prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data", f"--web.listen-address=127.0.0.1:{theirs}"]
    start(server, "prometheus")
    # So small that it is full within 50 steps: an alert, whether or not the collector has gone over all objects.
    job = [args.strandline, "run", "-o", "rec", "--simulate", "800MiB", "--metrics", f"127.0.0.1:{ours}", "--"]
    start([*job, args.python, os.path.join(HERE, "../python/alert.py"), "seen"], "job")
    until("60 steps", lambda: [r for r in ask("strandline_steps_total") if float(r["value"][1]) == 60])

    def same():
        """The job waits: its figures stand still, and Prometheus has the same."""
        served = {}
        for line in get(f"http://127.0.0.1:{ours}/metrics").splitlines():
            if not line.startswith("#"):
                series, value = line.rsplit(" ", 1)
                served[series] = float(value)
        stored = {}
        for r in ask('{__name__=~"strandline_.*"}'):
            labels = {k: v for k, v in r["metric"].items() if k not in ("__name__", "job", "instance") and v != ""}
            stored[r["metric"]["__name__"], tuple(sorted(labels.items()))] = float(r["value"][1])
        labels = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')
        key = lambda s: (s.split("{")[0], tuple(sorted((k, v) for k, v in labels.findall(s) if v != "")))
        served = {key(s): v for s, v in served.items()}
        return served == stored and len(served)

    print(f"ok   {until('what is stored is what is served', same)} series, each with the value that was served")
    board = json.load(open(os.path.join(GRAFANA, "dashboard.json")))
    asked = [t["expr"] for panel in board["panels"] for t in panel.get("targets", [])]
    for expression in asked:
        text = expression.replace("$rank", ".*")
        found = until(f"the dashboard's {expression}", lambda: ask(text))
        print(f"ok   {expression}: {len(found)} series")
    rank = re.fullmatch(r"label_values\((\w+), (\w+)\)", board["templating"]["list"][1]["query"]["query"])
    assert {r["metric"][rank[2]] for r in ask(rank[1])} == {"0"}, "the dashboard's variable"
    leak = ask('strandline_leak_bytes{kind="step-growth"}')
    assert len(leak) == 1 and float(leak[0]["value"][1]) > 300 << 20, leak
    assert re.search(r"alert\.py:\d+$", leak[0]["metric"]["site"]), leak
    fires = lambda: {a["labels"]["alertname"] for a in json.loads(get(f"{prometheus}/api/v1/alerts"))["data"]["alerts"] if a["state"] == "firing"}
    until("GpuMemoryLeak and GpuFullSoon fire", lambda: fires() >= {"GpuMemoryLeak", "GpuFullSoon"})
    assert fires() == {"GpuMemoryLeak", "GpuFullSoon"}, fires()
    said = [a["annotations"]["summary"] for a in json.loads(get(f"{prometheus}/api/v1/alerts"))["data"]["alerts"]]
    for line in sorted(said):
        print(f"ok   fires: {line}")
    open(os.path.join(here, "seen"), "w").close()
    assert started[1].wait(timeout=PATIENCE) == 0, "the job"


try:
    subprocess.run(["promtool", "check", "rules", os.path.join(GRAFANA, "rules.yml")], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["promtool", "test", "rules", os.path.join(HERE, "rules_test.yml")], check=True, stdout=subprocess.DEVNULL)
    print("ok   each rule fires where it must and not where it must not")
    run()
except AssertionError as e:
    for name in ("job", "prometheus"):
        path = os.path.join(here, name + ".txt")
        sys.stderr.write(open(path).read()[-4000:] if os.path.exists(path) else "")
    sys.exit(f"BAD  {e}")
finally:
    open(os.path.join(here, "seen"), "w").close()
    for process in started:
        process.terminate()
        process.wait()
    shutil.rmtree(here)
