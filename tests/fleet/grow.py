"""Grows a fleet from recorded ranks: each is written many times over, as the recording of another rank.

    grow.py FROM OUT --ranks N [--bad RANK=NAME]… [--missing RANK]… [--restarted RANK]… [--jobs N] [--apart SECONDS]

FROM has recordings `*-r0.strand` and `*-r1.strand` of healthy ranks, which take turns, and others that `--bad` names by their number. Rank, host
(8 ranks each), pid, start, time and the identity of the region differ from rank to rank; pages of events are as they were recorded. A restarted rank has an
earlier recording beside its own. The clock of each node is so many seconds ahead of the one before, or behind it. With several jobs OUT has a folder for each, `job-0000` and so on, of which every seventh has the bad ranks.
The same arguments make the same bytes.
"""

import argparse
import json
import pathlib
import struct
import zlib

p = argparse.ArgumentParser()
p.add_argument("source", type=pathlib.Path)
p.add_argument("out", type=pathlib.Path)
p.add_argument("--ranks", type=int, required=True)
p.add_argument("--bad", action="append", default=[])
p.add_argument("--missing", type=int, action="append", default=[])
p.add_argument("--restarted", type=int, action="append", default=[])
p.add_argument("--jobs", type=int)
p.add_argument("--apart", type=float, default=0.001000003)
args = p.parse_args()

FIXED, BLOCK = 24, 4096
MINUTE = 60_000_000_000


def read(number):
    """The JSON of a recording's header, the bytes before it, and those behind the header."""
    (path,) = args.source.glob(f"*-r{number}.strand")
    whole = path.read_bytes()
    (size,) = struct.unpack_from("<I", whole, 16)
    end = (FIXED + size + BLOCK - 1) // BLOCK * BLOCK + BLOCK
    return json.loads(whole[FIXED : FIXED + size]), whole[:16], whole[end:]


def write(out, source, rank, restart, job):
    header, magic, pages = source
    host, pid = f"node-{rank // 8:03}", 10_000 + rank + 2_000 * restart
    provenance = dict(header["provenance"], host=host, rank=rank, local_rank=rank % 8, world_size=args.ranks)
    provenance.update(pid=pid, restart=restart)
    header = dict(header, pid=pid, start=1 + rank, tail=None, provenance=provenance)
    header["region"] = f"{job:016x}{2 * rank + restart + 1:016x}"
    # A job of a folder begins an hour after the one before.
    header["unix_ns"] += (60 * job + 10 * restart) * MINUTE + rank // 8 * round(args.apart * 1e9)
    text = json.dumps(header, separators=(",", ":")).encode()
    head = magic + struct.pack("<II", len(text), zlib.crc32(text)) + text
    head += bytes(-len(head) % BLOCK + BLOCK)
    again = f"-restart{restart}" if restart else ""
    (out / f"{host}-r{rank}{again}.strand").write_bytes(head + pages)


bad = {int(rank): read(int(number)) for rank, number in (b.split("=") for b in args.bad)}
healthy = [read(0), read(1)]
for job in range(args.jobs or 1):
    out = args.out / f"job-{job:04}" if args.jobs else args.out
    out.mkdir(parents=True)
    for rank in set(range(args.ranks)) - set(args.missing):
        usual = healthy[(rank + job) % 2]
        source = bad.get(rank, usual) if job % 7 == 0 else usual
        if rank in args.restarted:
            write(out, usual, rank, 0, job)
        write(out, source, rank, int(rank in args.restarted), job)
