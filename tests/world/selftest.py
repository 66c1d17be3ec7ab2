"""What world.py calls a difference: compared.py on runs that were made up. `python3 tests/world/selftest.py`"""
import types

import compared
import observed


def run(status=0, losses=("0x1p+0",), peak=1024, lines=("a 1", "b"), files=None):
    said = {"losses": list(losses), "peak": peak, "steps": 3}
    return types.SimpleNamespace(status=status, losses=list(losses), peak=peak, lines=list(lines), files={"out/x": "1"} if files is None else files, said=said, why=lambda: "")


def differs(bares, recorded):
    return [d[0] for d in compared.differs(bares, recorded)]


same = [run(), run()]
assert differs(same, run()) == []
assert differs(same, run(status=139)) == ["status"]
assert differs(same, run(losses=["0x1.8p+0"])) == ["losses"]
assert differs(same, run(peak=1536)) == ["peak"]
assert differs(same, run(lines=["a 1", "b", "c"])) == ["stdout"]
assert differs(same, run(files={"out/x": "2"})) == ["file contents"]
assert differs(same, run(files={"out/x": "1", "core": "3"})) == ["files"]
assert differs([run(), run(status=1)], run(status=1)) == [] and differs([run(), run(status=1)], run(status=2)) == ["status"]
# What differs between bare runs is not held against a recorded one; what agrees still is.
loose = [run(losses=["0x1p+0"], peak=1000, lines=["a 1", "b"]), run(losses=["0x2p+0"], peak=1100, lines=["a 2", "b"])]
assert differs(loose, run(losses=["0x3p+0"], peak=1050, lines=["a 7", "b"])) == []
assert differs(loose, run(peak=5000, lines=["a 7", "b"])) == ["peak"]
assert differs(loose, run(peak=1050, lines=["z 7", "b"])) == ["stdout"]
assert differs([run(lines=["x", "y"]), run(lines=["y"])], run(lines=["x"])) == ["stdout"]
assert differs([run(files={"log.1732000001": "a"}), run(files={"log.1732000002": "b"})], run(files={"log.1732000003": "c"})) == []
assert differs([run(files={"log.1732000001": "a"}), run(files={"log.1732000002": "b"})], run(files={})) != []
assert compared.varies(loose) == ["losses", "peak", "stdout"] and compared.varies(same) == []
plain = observed.Run.plain
at = types.SimpleNamespace(folder="/tmp/x")
assert plain(at, "{'train_runtime': '1.23', 'loss': '0.5'} in /tmp/x/y 3.1 s at 0x7f00aa11") == "{'train_runtime': …, 'loss': '0.5'} in @/y … at 0x…"
print("ok")
