#!/bin/sh
# Makes a snapshot of every kind, for look.sh: moments, windows, filters, leaks, two devices, graph pools, expandable segments,
# a job that runs.
#
#   tests/viz/kinds.sh STRANDLINE PYTHON OUT
#
# STRANDLINE is the command, PYTHON has a PyTorch that sees a GPU or the simulated device (two of them, best). Takes a minute.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
[ $# -eq 3 ] || { sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2; }
strandline=$1 python=$2
mkdir -p "$3"
out=$(cd "$3" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export STRANDLINE_SIM_DEVICES=2

run() { # NAME COMMAND…
  name=$1
  shift
  "$strandline" run --quiet -o "$work/$name" -- "$@" >/dev/null 2>"$work/$name.txt" || { cat "$work/$name.txt" >&2; exit 1; }
}
snapshot() { # RUN NAME OPTION…
  from=$1 to=$2
  shift 2
  "$strandline" snapshot "$work/$from" "$@" -o "$out/$to" >/dev/null
}
# Each says on stderr what it made.

mkdir "$work/theirs" "$work/live"
run job "$python" "$here/python/snapshot_equality.py" "$work/theirs" plain streams capture oom devices
for moment in end peak oom step:2 step:3 mark:streams mark:capture mark:after_oom; do
  snapshot job "$(echo "$moment" | tr ':' '-').pickle" --at "$moment"
done
snapshot job end.json --format json
snapshot job last-steps.pickle --history 2
snapshot job window.pickle --at step:4 --steps 2..3
snapshot job side-streams.pickle --at mark:streams --stream side
snapshot job site.pickle --site snapshot_equality.py
snapshot job large.pickle --min-size 1MiB
snapshot job old.pickle --min-age 2

PYTORCH_ALLOC_CONF=expandable_segments:True
export PYTORCH_ALLOC_CONF
run expandable "$python" "$here/python/snapshot_equality.py" "$work/theirs" expandable
snapshot expandable expandable.pickle
snapshot expandable expandable-step-2.pickle --at step:2
unset PYTORCH_ALLOC_CONF

run live "$python" "$here/python/snapshot_live.py" "$work/live" &
until [ -f "$work/live/pid" ]; do sleep 0.1; done
"$strandline" snapshot "$(cat "$work/live/pid")" --at now -o "$out/now.pickle" >/dev/null
touch "$work/live/go"
wait
mv "$work/live/asked.pickle" "$work/live/late.pickle" "$out"

"$strandline" demo --simulated -o "$work/demo" >/dev/null 2>"$work/demo.txt" || { cat "$work/demo.txt" >&2; exit 1; }
snapshot demo leak.pickle
snapshot demo leak-peak.pickle --at peak
snapshot demo leak-last-steps.pickle --history 3
ls "$out"
