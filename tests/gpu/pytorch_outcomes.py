"""A pytest plugin: writes each test's outcome as it comes, takes one of several shards, and leaves out what was already tried. Beside PyTorch's own tests it also gives
PyTorch's test helpers the names that tests of 2.6 import and a later PyTorch no longer has; what those names stand for does nothing.

PYTORCH_OUTCOMES: the file; a test that was begun and has no outcome there has ended its process. PYTORCH_SHARD: "0/4". PYTORCH_BACKWARDS: where it is "1", the last test first.
"""
import importlib
import os
import zlib

FILE = os.environ["PYTORCH_OUTCOMES"]
SHARD, SHARDS = map(int, os.environ.get("PYTORCH_SHARD", "0/1").split("/"))

# test_nn.py alone imports these. The tests made from `new_module_tests` are in test_modules.py as well.
GONE = {
    "common_nn": {"new_module_tests": []},
    "common_cuda": {"tf32_is_not_fp32": lambda: False},
    "common_mkldnn": {"bf32_on_and_off": lambda *_, **__: lambda test: test},
}
for _name, _gone in GONE.items() if os.path.exists("test_nn.py") else ():
    _module = importlib.import_module(f"torch.testing._internal.{_name}")
    for _key, _value in _gone.items():
        if not hasattr(_module, _key):
            setattr(_module, _key, _value)


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
    items[:] = kept[::-1] if os.environ.get("PYTORCH_BACKWARDS") == "1" else kept


def pytest_runtest_logstart(nodeid):
    _say("begun", nodeid)


def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        _say(report.outcome if not hasattr(report, "wasxfail") else "x" + report.outcome, report.nodeid)
