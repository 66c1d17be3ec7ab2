#!/usr/bin/env python3
"""The table of what was predicted of ten models against a card, in markdown.

usage: predict_table.py SIMULATED.json CARD.jsonl [OTHERS.json]

SIMULATED.json of predict_simulated.py, CARD.jsonl of predict.sh (several files can be put together), OTHERS.json of predict_others.py.
"""
import json
import os
import statistics
import sys

GIB = 1 << 30
WHAT = ("allocated", "reserved", "used")


def off(told, measured):
    return 100 * (told / measured - 1)


def summary(deviations):
    sizes = [abs(d) for d in deviations]
    return f"{statistics.median(sizes):.2f} % median, {max(sizes):.2f} % worst" if sizes else "nothing measured"


def peaks(simulated, card, mode):
    """A row for each model; below it what all deviate."""
    bare = {line["name"]: line for line in card if line["part"] == "bare" and line["mode"] == mode}
    print(f"\n| {mode} | batch | allocated, GiB | predicted | reserved, GiB | predicted | device used, GiB | predicted |\n|---|---|---|---|---|---|---|---|")
    every = {what: [] for what in WHAT}
    for name, said in simulated.items():
        measured, told, cells = bare.get(name, {}), said.get(mode, {}), []
        for what in WHAT:
            if what not in measured or what not in told:
                cells += ["–", str(measured.get("out_of_memory") or measured.get("errors") or told.get("said") or "not run")[-60:]]
                continue
            every[what].append(off(told[what], measured[what]))
            cells += [f"{measured[what] / GIB:.3f}", f"{every[what][-1]:+.2f} %"]
        print(f"| {name} | {said['batch']} | " + " | ".join(c.replace("\n", " ").replace("|", "/") for c in cells) + " |")
    print("\n" + "; ".join(f"{what}: {summary(every[what])}" for what in WHAT))


def fits(simulated, card):
    runs = {(line["name"], line["size"], line["expected"]): line for line in card if line["part"] == "fit"}
    sizes = sorted({size for _, size, _ in runs})
    if not runs:
        return
    print("\n| fit | " + " | ".join(sizes) + " |\n|---|" + "---|" * len(sizes))
    right = {size: [] for size in sizes}
    for name in simulated:
        cells = []
        for size in sizes:
            found = [runs.get((name, size, expected)) for expected in ("runs", "fails")]
            good = [line and (line["status"] == status) for line, status in zip(found, (0, 3))]
            words = [f"{line['value']} {('runs', 'fails')[line['status'] == 3] if line['status'] in (0, 3) else line['status']}" if line else "–" for line in found]
            if any(found):
                right[size].append(all(g is not False and g is not None for g in good))
            cells.append(", ".join(words) + ("" if not any(found) or right[size][-1] else " ✗"))
        print(f"| {name} | " + " | ".join(cells) + " |")
    print("\n" + "; ".join(f"{size}: {sum(r)} of {len(r)}" for size, r in right.items()))


def advice(card):
    jobs = {(line["job"], line["variant"]): line for line in card if line["part"] == "advice"}
    if not jobs:
        return
    print("\n| waste | with it, GiB | line | foretold | changed | off | advice on the changed job |\n|---|---|---|---|---|---|---|")
    for job in dict.fromkeys(job for job, _ in jobs):
        waste, tuned = (jobs.get((job, variant), {}) for variant in ("waste", "tuned"))
        given = waste.get("told", {}).get("advice") or [{}]
        first, after = given[0], tuned.get("peak")
        foretold = first.get("peak_without_bytes")
        cells = [waste.get("peak"), foretold, after]
        cells = [f"{c / GIB:.3f}" if c else "–" for c in cells]
        print(
            f"| {job} | {cells[0]} | {first.get('kind', 'none')}, {first.get('line', '–')} | {cells[1]} | {cells[2]} | "
            f"{f'{off(foretold, after):+.2f} %' if foretold and after else '–'} | {[a['kind'] for a in tuned.get('told', {}).get('advice', [])] or 'none'} |"
        )


def others(simulated, card, told):
    bare = {line["name"]: line for line in card if line["part"] == "bare" and line["mode"] == "default" and "allocated" in line}
    tools = list(dict.fromkeys(tool for said in told.values() for tool in said))
    print("\n| allocated | measured, GiB | strandline | " + " | ".join(tools) + " |\n|---|---|---|" + "---|" * len(tools))
    every = {tool: [] for tool in ["strandline", *tools]}
    for name, line in bare.items():
        values = {"strandline": simulated.get(name, {}).get("default", {}).get("allocated"), **told.get(name, {})}
        cells = []
        for tool in every:
            if not isinstance(values.get(tool), (int, float)):
                cells.append("–")
                continue
            every[tool].append(off(values[tool], line["allocated"]))
            cells.append(f"{values[tool] / GIB:.2f} ({every[tool][-1]:+.2f} %)" if tool != "strandline" else f"{every[tool][-1]:+.2f} %")
        print(f"| {name} | {line['allocated'] / GIB:.3f} | " + " | ".join(cells) + " |")
    print("\n" + "; ".join(f"{tool}: {summary(d)}" for tool, d in every.items()))


def main():
    simulated = json.load(open(sys.argv[1]))
    card = [json.loads(line) for line in open(sys.argv[2])]
    names = {line.get("card") for line in card if line.get("card")}
    print("Card:", ", ".join(sorted(names)), json.dumps(next((line["versions"] for line in card if "versions" in line), {})))
    for mode in ("default", "expandable"):
        peaks(simulated, card, mode)
    fits(simulated, card)
    advice(card)
    if len(sys.argv) > 3 and os.path.exists(sys.argv[3]):
        others(simulated, card, json.load(open(sys.argv[3])))


main()
