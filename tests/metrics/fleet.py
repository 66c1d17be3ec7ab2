#!/usr/bin/env python3
"""The rules and the dashboard for many jobs, on a real Prometheus with thousands of ranks (`prometheus` in the PATH, as in Debian's package).

    fleet.py FIGURES.prom [--ranks 10000]       FIGURES.prom: what `--metrics file:FIGURES.prom` has kept of a job that leaks

Each rank is what the file says, with another rank and pid: a node has eight, two jobs share the nodes, and each rank has lines and leaks of
its own beside the common ones. Streams and lines are dropped as the PodMonitor drops them. Exit status 1 where something does not hold.
"""
import argparse
import collections
import http.server
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
GRAFANA = os.path.join(HERE, "../../docs/grafana")
EVERY = 30

p = argparse.ArgumentParser()
p.add_argument("figures")
p.add_argument("--ranks", type=int, default=10000)
args = p.parse_args()
figures = open(args.figures).read()
assert "strandline_leak_bytes{" in figures, "this job does not leak"
here = tempfile.mkdtemp(prefix="strandline-fleet-")


def of_rank(rank):
    """One process: every fourth has a leak at a line that no other has."""
    text = re.sub(r'rank="[^"]*",pid="[^"]*",process="[^"]*"', f'rank="{rank}",pid="7",process="rank {rank}, pid 7"', figures)
    own = [re.sub(r'site="[^"]*"', f'site="train.py:{rank}"', l) for l in text.splitlines() if l.startswith("strandline_leak") and rank % 4 == 0]
    return text.splitlines() + own


class Node(http.server.BaseHTTPRequestHandler):
    """/17/metrics: the ranks of node 17."""

    def do_GET(self):
        families = collections.defaultdict(list)
        node = int(self.path.split("/")[1])
        for rank in range(8 * node, min(8 * node + 8, args.ranks)):
            for line in of_rank(rank):
                name = line.split()[2] if line.startswith("#") else line.split("{")[0]
                if line not in families[name]:
                    families[name].append(line)
        body = ("\n".join(line for lines in families.values() for line in lines) + "\n").encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def get(path):
    with urllib.request.urlopen(f"http://127.0.0.1:{theirs}{path}", timeout=60) as answer:
        return json.load(answer)["data"]


def ask(expression):
    return get(f"/api/v1/query?query={urllib.parse.quote(expression)}")["result"]


def until(what, look, patience=300):
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        try:
            if found := look():
                return found
        except OSError:
            pass
        time.sleep(2)
    sys.exit(f"BAD  {what}: not within {patience} s")


def number(expression):
    found = ask(expression)
    return float(found[0]["value"][1]) if found else None


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Node)
server.socket.listen(512)
threading.Thread(target=server.serve_forever, daemon=True).start()
nodes = range((args.ranks + 7) // 8)
targets = [
    {"targets": [f"127.0.0.1:{server.server_port}"], "labels": {"__metrics_path__": f"/{n}/metrics", "node": f"n{n}", "namespace": "train", "run": "ab"[n % 2]}}
    for n in nodes
]
json.dump(targets, open(os.path.join(here, "targets.json"), "w"))
open(os.path.join(here, "prometheus.yml"), "w").write(f"""
global: {{scrape_interval: {EVERY}s, scrape_timeout: 20s, evaluation_interval: {EVERY}s}}
rule_files: ["{os.path.abspath(GRAFANA)}/fleet.yml"]
scrape_configs:
  - job_name: strandline
    file_sd_configs: [{{files: [targets.json]}}]
    relabel_configs: [{{source_labels: [node], target_label: instance}}]
    metric_relabel_configs: [{{source_labels: [__name__], regex: strandline_(site|stream)_live_bytes, action: drop}}]
""")
theirs = port()
log = open(os.path.join(here, "prometheus.txt"), "w")
words = ["prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data", f"--web.listen-address=127.0.0.1:{theirs}"]
prometheus = subprocess.Popen(words, cwd=here, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
try:
    until("all nodes are scraped", lambda: number("count(strandline_steps_total)") == args.ranks)
    until("the rules have seen all", lambda: number("sum(run:strandline_processes:count)") == args.ranks)
    # One more round, with all of them.
    time.sleep(EVERY + 5)
    series = number('count({__name__=~"strandline_.*"})')
    dropped = number('count({__name__=~"strandline_(site|stream)_live_bytes"})')
    assert dropped is None, dropped
    ruled = ask('count by (__name__) ({__name__=~"run.*:strandline_.*"})')
    ruled = {r["metric"]["__name__"]: int(r["value"][1]) for r in ruled}
    assert ruled["run_site:strandline_leak_bytes:sum"] == 40, ruled
    assert ruled.pop("run_node:strandline_reserved_ratio:max") == len(nodes), ruled
    assert all(n <= 40 for n in ruled.values()), ruled
    everywhere = ask('run_site:strandline_leak_processes:count{site!~"train.py:.*"}')
    assert sorted(int(r["value"][1]) for r in everywhere) == sorted(sum(1 for r in range(args.ranks) if r // 8 % 2 == k) for k in (0, 1)), everywhere
    board = json.load(open(os.path.join(GRAFANA, "fleet.json")))
    for panel in board["panels"]:
        for target in panel["targets"]:
            # A job that leaks slowly has no step at which it is full soon.
            found = ask(target["expr"].replace("$run", ".*"))
            assert found or "steps_to_full" in target["expr"], target["expr"]
            assert len(found) <= 40, (target["expr"], len(found))
            print(f"ok   {target['expr']}: {len(found)} series")
    groups = get("/api/v1/rules")["groups"]
    bad = [r["name"] for g in groups for r in g["rules"] if r["health"] != "ok"]
    assert not bad, bad
    seconds = {g["name"]: g["evaluationTime"] for g in groups}
    assert max(seconds.values()) < EVERY / 3, seconds
    rss = int(re.search(r"VmHWM:\s+(\d+)", open(f"/proc/{prometheus.pid}/status").read())[1]) >> 10
    print(f"ok   {args.ranks} ranks, {len(nodes)} nodes: {series:.0f} series ({series / args.ranks:.1f} a rank), {sum(ruled.values())} by job, rules in {sum(seconds.values()):.2f} s, Prometheus at most {rss} MiB")
except AssertionError as e:
    sys.exit(f"BAD  {e}")
finally:
    prometheus.terminate()
    prometheus.wait()
    shutil.rmtree(here)
