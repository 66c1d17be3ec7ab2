"""A pytest plugin: writes each test's outcome as it comes, takes one of several shards, and leaves out what was already tried.

PYTORCH_OUTCOMES: the file; a test that was begun and has no outcome there has ended its process. PYTORCH_SHARD: "0/4".
"""
import os
import zlib

FILE = os.environ["PYTORCH_OUTCOMES"]
SHARD, SHARDS = map(int, os.environ.get("PYTORCH_SHARD", "0/1").split("/"))


def _say(*words):
    with open(FILE, "a") as f:
        f.write("\t".join(words) + "\n")


def pytest_collection_modifyitems(config, items):
    tried = set()
    if os.path.exists(FILE):
        with open(FILE) as f:
            tried = {line.split("\t")[1].strip() for line in f}
    kept = [i for i in items if zlib.crc32(i.nodeid.encode()) % SHARDS == SHARD and i.nodeid not in tried]
    config.hook.pytest_deselected(items=[i for i in items if i not in set(kept)])
    items[:] = kept


def pytest_runtest_logstart(nodeid):
    _say("begun", nodeid)


def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        _say(report.outcome if not hasattr(report, "wasxfail") else "x" + report.outcome, report.nodeid)
