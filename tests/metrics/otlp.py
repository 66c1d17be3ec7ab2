#!/usr/bin/env python3
"""What `--metrics otlp` pushes, decoded by OpenTelemetry's own definitions; with --collector, by a collector as well.

    python3 -m venv target/otlp && target/otlp/bin/pip install opentelemetry-proto rotel
    target/otlp/bin/python tests/metrics/otlp.py --strandline BIN --python PYTHON [--collector]

PYTHON has torch (strandline simulate --python). Exit status 1 where something does not hold.
"""
import argparse
import gzip
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

from google.protobuf import json_format
from ports import port, reached, until
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as service
from opentelemetry.proto.metrics.v1 import metrics_pb2 as metrics

HERE = os.path.dirname(os.path.abspath(__file__))
PATIENCE = 100

p = argparse.ArgumentParser()
p.add_argument("--strandline", required=True)
p.add_argument("--python", required=True)
p.add_argument("--collector", action="store_true", help="push through rotel, and decode what it passes on")
args = p.parse_args()
here = tempfile.mkdtemp(prefix="strandline-otlp-")
got = []


class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers["Content-Encoding"] == "gzip":
            body = gzip.decompress(body)
        kind = self.headers["Content-Type"].split(";")[0]
        request = service.ExportMetricsServiceRequest()
        status = 200
        try:
            # Fields that are not OpenTelemetry's are errors here, and so are values of the wrong type.
            request.ParseFromString(body) if kind == "application/x-protobuf" else json_format.Parse(body, request)
            got.append((self.path, {k.lower(): v for k, v in self.headers.items()}, request))
        except Exception as e:
            status = 400
            got.append((self.path, {}, e))
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.end_headers()
        if kind == "application/json":
            self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


def job(endpoint, options=(), **more):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("OTEL_", "STRANDLINE_ALERT"))}
    env.update(OTEL_EXPORTER_OTLP_ENDPOINT=endpoint, OTEL_METRIC_EXPORT_INTERVAL="1000", **more)
    out = os.path.join(here, f"rec{len(os.listdir(here))}")
    words = [args.strandline, "run", "-o", out, "--simulate", "1GiB", *options, "--", args.python, os.path.join(HERE, "../python/alert.py"), "/"]
    r = subprocess.run(words, env=env, cwd=here, capture_output=True, text=True)
    assert r.returncode == 0, r.stderr
    return r.stderr


def figures(request):
    """What they are about, and of the last ones: name, labels and value of every figure."""
    abouts, all = [], {}
    for resource in request.resource_metrics:  # a collector may put several pushes into one
        abouts.append({a.key: a.value.string_value for a in resource.resource.attributes})
        [scope] = resource.scope_metrics
        assert scope.scope.name == "strandline" and scope.scope.version, scope.scope
        for m in scope.metrics:
            kind = m.WhichOneof("data")
            assert kind == ("sum" if m.name.endswith("_total") else "gauge"), (m.name, kind)
            if kind == "sum":
                assert m.sum.is_monotonic and m.sum.aggregation_temporality == metrics.AGGREGATION_TEMPORALITY_CUMULATIVE, m.name
            assert m.description and m.unit == ("By" if m.name.endswith(("_bytes", "_bytes_per_step")) else ""), (m.name, m.unit)
            for point in getattr(m, kind).data_points:
                assert 0 < point.start_time_unix_nano <= point.time_unix_nano <= time.time_ns(), m.name
                labels = {a.key: a.value.string_value for a in point.attributes}
                assert len(labels) == len(point.attributes) and {"rank", "pid"} <= labels.keys(), labels
                all[m.name, tuple(sorted(labels.items()))] = point.as_double
    return abouts, all


def check(endpoint):
    said = job(endpoint)
    assert not got and "nothing is sent anywhere)" in said, "an endpoint alone sends nothing"
    print("ok   an endpoint alone sends nothing")
    said = job(endpoint, OTEL_METRICS_EXPORTER="otlp", OTEL_EXPORTER_OTLP_HEADERS="x-team=a%20b", OTEL_SERVICE_NAME="train",
               OTEL_RESOURCE_ATTRIBUTES="cluster=one")
    assert "only metrics to the collector are sent" in said, said
    # A collector passes what the job pushed last on a while later.
    ended = lambda: any(v == 60 for _, _, request in list(got) for (n, _), v in figures(request)[1].items() if n == "strandline_steps_total")
    until("what the job's end pushed is passed on", ended, PATIENCE)
    # A collector passes on what it got in pieces of its own: the newest of each figure counts.
    all, abouts = {}, []
    for path, headers, request in got:
        assert not isinstance(request, Exception), request
        about, some = figures(request)
        abouts.extend(about)
        all.update(some)
        assert path == "/v1/metrics", path
        if not args.collector:
            assert headers["content-type"] == "application/json" and headers["x-team"] == "a b", headers
    assert abouts[0]["service.name"] == "train" and abouts[0]["cluster"] == "one" and abouts[0]["host.name"], abouts
    value = lambda name: [v for (n, _), v in all.items() if n == name]
    assert value("strandline_steps_total") == [60], value("strandline_steps_total")
    assert value("strandline_leak_bytes")[0] > 300 << 20, value("strandline_leak_bytes")
    assert value("strandline_capacity_bytes") == [1 << 30], value("strandline_capacity_bytes")
    print(f"ok   {len(got)} pushes, {len(all)} figures, the last ones those of the job's end")
    got.clear()
    job(endpoint, ["--metrics", "otlp"])
    until("something is pushed", lambda: got, PATIENCE)
    print("ok   --metrics otlp needs no other wish")


receiver = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
threading.Thread(target=receiver.serve_forever, daemon=True).start()
endpoint = f"http://127.0.0.1:{receiver.server_port}"
collector = None
try:
    if args.collector:
        agent = os.path.join(os.path.dirname(importlib.util.find_spec("rotel").origin), "rotel-agent")
        http_port, grpc_port = port(), port()
        words = [agent, "start", "--otlp-http-endpoint", f"127.0.0.1:{http_port}", "--otlp-grpc-endpoint", f"127.0.0.1:{grpc_port}",
                 "--exporter", "otlp", "--otlp-exporter-endpoint", endpoint, "--otlp-exporter-protocol", "http", "--metrics-batch-timeout", "1s"]
        log = open(os.path.join(here, "rotel.txt"), "w")
        collector = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=here)
        until("the collector listens", lambda: reached(http_port), PATIENCE)
        endpoint = f"http://127.0.0.1:{http_port}"
    check(endpoint)
except AssertionError as e:
    if collector:
        sys.stderr.write(open(os.path.join(here, "rotel.txt")).read()[-4000:])
    sys.exit(f"BAD  {e}")
finally:
    if collector:
        collector.terminate()
        collector.wait()
    shutil.rmtree(here)
