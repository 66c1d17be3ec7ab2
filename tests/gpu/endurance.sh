#!/usr/bin/env bash
# Does anything grow on a card in 20 minutes at full rate (tests/bench/endurance.py), beside whatever else the machine does meanwhile.
#   [SECONDS_ALL=1200] tests/gpu/endurance.sh CARRY start     begins it in a session of its own and returns at once
#                      tests/gpu/endurance.sh CARRY wait OUT  waits up to LIMIT (600) seconds for its end; exit status and text are its own
# CARRY: strandline. Both calls on the same machine.
set -u
cd "$(dirname "$0")/../.."
carry=$(cd "$1" && pwd); work=/tmp/strandline-endurance
case "$2" in
  start)
    mkdir -p "$work/cache"; cp "$carry/strandline" "$work/"; chmod +x "$work/strandline"; cp tests/bench/endurance.py "$work/"
    cd "$work"
    XDG_CACHE_HOME="$work/cache" setsid nohup bash -c '"$1" endurance.py --strandline "$PWD/strandline" --python "$1" --seconds "$2" --out samples.json > text 2>&1; echo $? > status' \
      _ "$(command -v "${PYTHON:-python3}")" "${SECONDS_ALL:-1200}" > /dev/null 2>&1 < /dev/null &
    echo "endurance: begun";;
  wait)
    for ((i = 0; i < ${LIMIT:-600}; i++)); do [ -f "$work/status" ] && break; sleep 1; done
    mkdir -p "$3"; cp "$work/text" "$3/endurance.txt"; cp "$work/samples.json" "$3/endurance.json" 2> /dev/null
    cat "$work/text"; [ -f "$work/status" ] || { echo "endurance: still running"; exit 1; }
    exit "$(cat "$work/status")";;
esac
