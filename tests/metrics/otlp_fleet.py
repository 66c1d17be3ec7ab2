#!/usr/bin/env python3
"""What the watchers of 10,000 ranks push in one interval, through a real collector: nothing is refused, nothing is missing behind it.

    python3 -m venv target/otlp && target/otlp/bin/pip install opentelemetry-proto rotel
    target/otlp/bin/python tests/metrics/otlp_fleet.py --strandline BIN --python PYTHON [--ranks 10000] [--rounds 3]

PYTHON has torch (strandline simulate --python). A node's push is that of a real job that leaks, once for each of its eight ranks, with other
ranks and pids; every fourth rank leaks at a line of its own besides. Exit status 1 where something does not hold.
"""
import argparse
import concurrent.futures
import copy
import gzip
import http.client
import http.server
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time

from ports import port, reached, until
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as service

HERE = os.path.dirname(os.path.abspath(__file__))
NODE = 8
PATIENCE = 300
# A process has at most 4 series, 6 for its device, 8 for streams, 10 for lines, and 3 for each leak (docs/fleet.md): here one leak, or two.
MOST = 4 + 6 + 8 + 10 + 2 * 3

p = argparse.ArgumentParser()
p.add_argument("--strandline", required=True)
p.add_argument("--python", required=True)
p.add_argument("--ranks", type=int, default=10000)
p.add_argument("--rounds", type=int, default=3)
args = p.parse_args()
here = tempfile.mkdtemp(prefix="strandline-otlp-")


class Receiver(http.server.ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True

    def __init__(self, take):
        super().__init__(("127.0.0.1", 0), Handler)
        self.take = take
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers["Content-Encoding"] == "gzip":
            body = gzip.decompress(body)
        self.server.take(body)
        is_json = self.headers["Content-Type"].startswith("application/json")
        answer = b"{}" if is_json else b""
        self.send_response(200)
        self.send_header("Content-Type", "application/json" if is_json else "application/x-protobuf")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


def pushed_by_a_job():
    """The last push of a real job that leaks."""
    got = []
    receiver = Receiver(got.append)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("OTEL_", "STRANDLINE_"))}
    env.update(OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{receiver.server_port}", OTEL_METRIC_EXPORT_INTERVAL="1000")
    words = [args.strandline, "run", "-o", os.path.join(here, "rec"), "--simulate", "1GiB", "--metrics", "otlp", "--", args.python]
    subprocess.run([*words, os.path.join(HERE, "../python/alert.py"), "/"], env=env, cwd=here, check=True, capture_output=True)
    receiver.shutdown()
    assert got, "the job pushed nothing"
    return json.loads(got[-1])


def attribute(of, name, value):
    for a in of["attributes"]:
        if a["key"] == name:
            a["value"] = {"stringValue": value}


def of_node(push, node):
    """The job's push, as it would come from a node's watcher."""
    push = copy.deepcopy(push)
    [resource] = push["resourceMetrics"]
    attribute(resource["resource"], "host.name", f"node{node}")
    for metric in resource["scopeMetrics"][0]["metrics"]:
        [data] = [v for k, v in metric.items() if k in ("sum", "gauge")]
        points = []
        for rank in range(NODE * node, min(NODE * node + NODE, args.ranks)):
            for of_one in data["dataPoints"]:
                sites = [None, f"train.py:{rank}"] if metric["name"].startswith("strandline_leak") and rank % 4 == 0 else [None]
                for site in sites:
                    points.append(copy.deepcopy(of_one))
                    for name, value in (("rank", str(rank)), ("process", f"rank {rank}, pid 7"), ("pid", "7"), *([("site", site)] if site else [])):
                        attribute(points[-1], name, value)
        data["dataPoints"] = points
    return json.dumps(push).encode()


def series_of(body):
    request = service.ExportMetricsServiceRequest()
    request.ParseFromString(body)
    for resource in request.resource_metrics:
        about = {a.key: a.value.string_value for a in resource.resource.attributes}
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                for point in getattr(metric, metric.WhichOneof("data")).data_points:
                    labels = {a.key: a.value.string_value for a in point.attributes}
                    yield labels["rank"], (about["host.name"], metric.name, tuple(sorted(labels.items())))


def processor_seconds(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


bodies, lock = [], threading.Lock()


def keep(body):
    with lock:
        bodies.append(body)


def points_so_far():
    with lock:
        mine, bodies[:] = bodies[:], []
    for body in mine:
        for rank, series in series_of(body):
            seen.setdefault(rank, set()).add(series)
            counted[0] += 1
    return counted[0]


seen, counted = {}, [0]
receiver = Receiver(keep)
into, grpc = port(), port()
# Where it divides a batch (8,192 metrics unless told otherwise), this collector leaves out what the second part is about.
agent = os.path.join(os.path.dirname(importlib.util.find_spec("rotel").origin), "rotel-agent")
words = [agent, "start", "--otlp-http-endpoint", f"127.0.0.1:{into}", "--otlp-grpc-endpoint", f"127.0.0.1:{grpc}", "--exporter", "otlp",
         "--otlp-exporter-endpoint", f"http://127.0.0.1:{receiver.server_port}", "--otlp-exporter-protocol", "http", "--metrics-batch-timeout", "1s", "--metrics-batch-max-size", "1000000"]
collector = None
try:
    push = pushed_by_a_job()
    nodes = range((args.ranks + NODE - 1) // NODE)
    pushes = [of_node(push, n) for n in nodes]
    points = sum(len(next(v for k, v in m.items() if k in ("sum", "gauge"))["dataPoints"]) for b in pushes for m in json.loads(b)["resourceMetrics"][0]["scopeMetrics"][0]["metrics"])
    with open(os.path.join(here, "rotel.txt"), "w") as log:
        collector = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=here)
    until("the collector listens", lambda: reached(into), PATIENCE)

    def send(body):
        connection = http.client.HTTPConnection("127.0.0.1", into, timeout=60)
        connection.request("POST", "/v1/metrics", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer.status

    for n in range(1, args.rounds + 1):
        before, begun = processor_seconds(collector.pid), time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            refused = [s for s in pool.map(send, pushes) if s != 200]
        assert not refused, (len(refused), refused[0])
        until("every point is passed on", lambda: points_so_far() == n * points, PATIENCE)
        print(f"ok   round {n}: {len(pushes)} pushes, {points} points, in {time.monotonic() - begun:.1f} s; the collector used {processor_seconds(collector.pid) - before:.1f} s of a processor")
    most, all = max(map(len, seen.values())), sum(map(len, seen.values()))
    assert len(seen) == args.ranks and most <= MOST and all == points, (len(seen), most, all)
    rss = int(next(l for l in open(f"/proc/{collector.pid}/status") if l.startswith("VmHWM")).split()[1]) >> 10
    sizes = sorted(map(len, pushes))
    print(f"ok   {args.ranks} ranks, {len(nodes)} nodes: {all} series ({all / args.ranks:.1f} a rank, at most {most}), the same in each round; a push has {sizes[len(sizes) // 2] / 1000:.0f} kB; the collector at most {rss} MiB")
except AssertionError as e:
    if collector:
        sys.stderr.write(open(os.path.join(here, "rotel.txt")).read()[-2000:])
    sys.exit(f"BAD  {e}")
finally:
    if collector:
        collector.terminate()
        collector.wait()
    shutil.rmtree(here)
