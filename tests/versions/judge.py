"""One row of the table of versions: what the report says of `job.py`, held against what the job says.

    judge.py SAID.json REPORT.json     prints the row; ends with 1 where something is not as it must be
"""

import json
import os
import sys

said = json.load(open(sys.argv[1]))
process = json.load(open(sys.argv[2]))["processes"][0]
device = process["devices"][0]
source = open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "job.py"), encoding="utf-8")
planted = next(n for n, line in enumerate(source, 1) if line.rstrip().endswith("# LEAK"))
finding = next(iter(process["findings"]), {})
sites = finding.get("sites") or [{}]
line = sites[0].get("your_line") or {}
checks = {
    "attached": process["allocator"] == "native" and process["coverage"]["level"] == "blocks",
    "drift 0": process["accounting_drift_bytes"] == 0 and process["events_lost"] == 0 and not process["damage"],
    "peaks": (device["peak_allocated_bytes"], device["peak_reserved_bytes"]) == (said["peak"], said["reserved"]),
    "steps": (process["steps"], process["step_source"]) == (said["steps"], "optimizer"),
    "line": (line.get("line"), line.get("function")) == (planted, "train"),
    "stream": (finding.get("stream") or {}).get("side") is True,
    "rate": finding.get("bytes_per_step") == 16 << 20,
}
cells = [said["torch"], said["cuda"]] + ["yes" if right else "NO" for right in checks.values()]
if sys.argv[3:] == ["--header"]:
    print("| " + " | ".join(["torch", "CUDA", *checks]) + " |")
print("| " + " | ".join(cells) + " |")
sys.exit(0 if all(checks.values()) else 1)
