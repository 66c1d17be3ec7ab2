#!/usr/bin/env bash
# Does anything grow on a card in 20 minutes at full rate (tests/bench/endurance.py), beside whatever else the machine does meanwhile.
#   [SECONDS_ALL=1200] tests/gpu/endurance.sh CARRY start     begins it and returns at once
#                      tests/gpu/endurance.sh CARRY wait OUT  waits up to LIMIT (600) seconds for its end; exit status and text are its own
# CARRY: strandline. Both calls on the same machine.
set -u
cd "$(dirname "$0")/../.."
case "$2" in
  start)
    mkdir -p /tmp/strandline-endurance; cp "$1/strandline" tests/bench/endurance.py /tmp/strandline-endurance/; chmod +x /tmp/strandline-endurance/strandline
    # shellcheck disable=SC2016  # $BACKGROUND is the other shell's
    tests/gpu/background.sh start endurance bash -c 'cd /tmp/strandline-endurance && exec "$1" endurance.py --strandline "$PWD/strandline" --python "$1" --seconds "$2" --out "$BACKGROUND/samples.json"' \
      _ "$(command -v "${PYTHON:-python3}")" "${SECONDS_ALL:-1200}";;
  wait) exec tests/gpu/background.sh wait endurance "$3";;
esac
