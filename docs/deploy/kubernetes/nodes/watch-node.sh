#!/bin/sh
# Watches all jobs of a machine: one `strandline watch` for each folder RECORDINGS/<run>/<folder> in which a process of this user records.
# Their metrics come together in FIGURES, for node_exporter's textfile collector, with the labels run and folder.
#     watch-node.sh RECORDINGS FIGURES
set -u
recordings=$1 figures=$2
work=$(mktemp -d)
# shellcheck disable=SC2046 # words
trap 'kill $(cat "$work"/*.pid) 2>/dev/null; rm -rf "$work"; exit 0' TERM INT

# start NAME FOLDER: once for the recordings that are there; again when there are others
start() {
  now=$(find "$2" -maxdepth 1 -name '*.strand' -mtime -1 | sort)
  [ -n "$now" ] && [ "$now" != "$(cat "$work/$1.seen" 2>/dev/null)" ] || return 0
  echo "$now" >"$work/$1.seen"
  strandline watch --metrics "file:$work/$1.figures" "$2" &
  echo $! >"$work/$1.pid"
}

while :; do
  for folder in "$recordings"/*/*/; do
    run=$(basename "$(dirname "$folder")") name=$(basename "$folder")
    case $run$name in *[!A-Za-z0-9._-]*) continue ;; esac
    at=$work/$run,$name
    if [ -e "$at.pid" ] && kill -0 "$(cat "$at.pid")" 2>/dev/null; then
      [ -e "$at.figures" ] || continue
      # Whoever reads finds the old figures or the new ones.
      sed "s/^\(strandline_[a-z_]*\){/\1{run=\"$run\",folder=\"$name\",/" "$at.figures" >"$figures/$run,$name.new" &&
        mv "$figures/$run,$name.new" "$figures/$run,$name.prom"
    else
      rm -f "$at.pid" "$at.figures" "$figures/$run,$name.prom"
      start "$run,$name" "$folder"
    fi
  done
  sleep 5 &
  wait $!
done
