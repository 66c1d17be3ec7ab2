"""What a recorded run has other than the bare ones: only where the bare ones agree among themselves."""
import re
from collections import Counter

# Numbers in file names that no two runs share: times and process ids.
NUMBER = re.compile(r"\d{5,}|[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{16,}")


def varies(bares):
    """In what the bare runs differ among themselves."""
    first = bares[0]
    found = []
    for what in ("status", "losses", "peak", "lines", "said"):
        if any(getattr(b, what) != getattr(first, what) for b in bares[1:]):
            found.append("stdout" if what == "lines" else what)
    if "said" in found and {"losses", "peak"} & set(found):
        found.remove("said")
    if any(set(b.files) != set(first.files) for b in bares[1:]):
        found.append("file names")
    elif any(b.files != first.files for b in bares[1:]):
        found.append("file contents")
    return found


def differs(bares, recorded):
    """A list of (what, bare, recorded): what the recorded run has, and none of the bare ones."""
    found = []
    if recorded.status not in [b.status for b in bares]:
        found.append(("status", bares[0].status, f"{recorded.status} {recorded.why()}"))
        return found
    if _agree(bares, "losses") and recorded.losses != bares[0].losses:
        found.append(("losses", *_first(bares[0].losses or [], recorded.losses or [])))
    if _agree(bares, "peak"):
        if recorded.peak != bares[0].peak:
            found.append(("peak", bares[0].peak, recorded.peak))
    else:
        peaks = [b.peak or 0 for b in bares]
        if not 0.8 * min(peaks) <= (recorded.peak or 0) <= 1.25 * max(peaks):
            found.append(("peak", f"{min(peaks)} to {max(peaks)}", recorded.peak))
    rest = lambda run: {k: v for k, v in run.said.items() if k not in ("losses", "peak")}
    if all(rest(b) == rest(bares[0]) for b in bares) and rest(recorded) != rest(bares[0]):
        found.append(("said", rest(bares[0]), rest(recorded)))
    found += [("stdout", *d) for d in [_lines([b.lines for b in bares], recorded.lines)] if d]
    return found + _files(bares, recorded)


def _agree(bares, what):
    return all(getattr(b, what) == getattr(bares[0], what) for b in bares)


def _first(a, b):
    for n, (x, y) in enumerate(zip(a, b)):
        if x != y:
            return f"{n + 1}: {x}", f"{n + 1}: {y}"
    return f"{len(a)} values", f"{len(b)} values"


def _lines(bares, recorded):
    """The first line that all bare runs have alike, and the recorded one does not."""
    if all(b == bares[0] for b in bares):
        return None if recorded == bares[0] else _first(bares[0], recorded)
    if {len(b) for b in bares} == {len(recorded)}:
        for together in zip(recorded, *bares):
            if not _words(*together):
                return together[1], together[0]
        return None
    common = Counter(bares[0])
    for b in bares[1:]:
        common &= Counter(b)
    missing = common - Counter(recorded)
    return (next(iter(missing)), "no such line") if missing else None


def _words(recorded, *bares):
    """Whether a line is the bare ones', word for word, but for the words in which these differ."""
    split = [b.split() for b in bares]
    if len({len(s) for s in split}) > 1:
        return True
    ours = recorded.split()
    return len(ours) == len(split[0]) and all(o in b or len(set(b)) > 1 for o, b in zip(ours, zip(*split)))


def _files(bares, recorded):
    names = [set(b.files) for b in bares]
    ours = set(recorded.files)
    if any(n != names[0] for n in names):
        # Names with a time or a process id in them are compared without it.
        names = [{NUMBER.sub("#", n) for n in one} for one in names]
        ours = {NUMBER.sub("#", n) for n in ours}
        if any(n != names[0] for n in names):
            lacking = set.intersection(*names) - ours
            return [("files", sorted(lacking)[:3], "absent")] if lacking else []
    if ours != names[0]:
        return [("files", sorted(names[0] - ours)[:3], sorted(ours - names[0])[:3])]
    for name, content in bares[0].files.items():
        if name in recorded.files and all(b.files.get(name) == content for b in bares) and recorded.files[name] != content:
            return [("file contents", name, "other bytes")]
    return []
