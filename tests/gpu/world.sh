#!/usr/bin/env bash
# The world's jobs on a real card, in parallel: bare twice and recorded once each; exit status 1 where any differs. About eight minutes on 16 cores.
#   [ONLY=REGEX] [MODES=python] [JOBS=14] [SECONDS_IN_ALL=440] [SIMULATED=1] tests/gpu/world.sh CARRY OUT
# SIMULATED: on the simulated device, with the libraries of the card's machine.
# CARRY: strandline (the command) and the wheels that the machine lacks (tests/gpu/world_carry.sh). OUT gets results.jsonl, line by line as jobs end,
# table.md, world.txt (what is printed) and texts.tgz (what the runs that differ said). A library that is not there is said, not failed.
set -u
cd "$(dirname "$0")/../.."
carry=$(realpath "$1"); mkdir -p "$2"; out=$(realpath "$2")
py=${PYTHON:-python3}
work=$(mktemp -d)
export XDG_CACHE_HOME="$work/cache"
chmod +x "$carry/strandline"
# Wheels are unpacked side by side: every one is plain files, and pip would take a minute for its checks.
# Two may make the same folder at the same time: the one that fails tries again.
unpack() { mkdir -p "$1"; for w in "$2"/*.whl; do [ -e "$w" ] && { "$py" -m zipfile -e "$w" "$1" 2> /dev/null || "$py" -m zipfile -e "$w" "$1"; } & done; wait; }
unpack "$work/site" "$carry/wheels"
for apart in "$carry"/apart/*/; do unpack "$work/site/apart/$(basename "$apart")" "$apart"; done
# zipfile forgets which files are programs: ray has some.
chmod -R u+x "$work/site"
cards=$(nvidia-smi -L 2> /dev/null | grep -c '^GPU ')
[ -z "${SIMULATED:-}" ] || device=--simulated
timeout "${LIMIT:-585}" "$py" tests/world/world.py --out "$work/world" --strandline "$carry/strandline" --python "$(command -v "$py")" --path "$work/site" \
  --wheels "$carry/wheels" --jobs "${JOBS:-14}" --seconds "${SECONDS_IN_ALL:-440}" --grace 100 --limit "${EACH:-200}" --cards "$cards" --modes "${MODES:-python}" --only "${ONLY:-}" ${device:-} \
  > "$work/world.txt" 2>&1
status=$?
cp "$work/world.txt" "$out/"; cp "$work"/world/results.jsonl "$work"/world/table.md "$out/" 2> /dev/null
# What the runs printed, without recordings and without what they made.
(cd "$work/world/runs" 2> /dev/null && find . -type f \( -name stdout -o -name stderr \) -size -200k -print0 | tar -czf "$out/texts.tgz" --null -T -)
grep -v '^same ' "$work/world.txt" | tail -c 11000
[ "$status" != 124 ] || echo "world: no end after ${LIMIT:-585} s; what was ended by then is in $out/results.jsonl"
rm -rf "$work"
exit "$status"
