#!/usr/bin/env bash
# Runs something in a session of its own, beside whatever the card's machine does meanwhile, so that a later call on the same machine finds it.
#   tests/gpu/background.sh start NAME COMMAND…   returns at once. COMMAND runs where this is called; files that it writes to "$BACKGROUND" are kept
#   tests/gpu/background.sh wait NAME OUT         waits up to LIMIT (600) seconds for its end, then prints the end of its text; OUT/NAME gets the text
#                                                 and the files. Exit status: its own; 75 where it still runs, 69 where
#                                                 it was begun on another machine
set -u
work=/tmp/strandline-background/$2
case "$1" in
  start)
    shift 2
    rm -rf "$work"; mkdir -p "$work/out"
    BACKGROUND=$work/out XDG_CACHE_HOME=$work/cache setsid nohup bash -c '"$@" > "$0/text" 2>&1; echo $? > "$0/status"' "$work" "$@" > /dev/null 2>&1 < /dev/null &
    echo "${work##*/}: begun";;
  wait)
    [ -d "$work" ] || { echo "$2: not begun on this machine"; exit 69; }
    for ((i = 0; i < ${LIMIT:-600}; i++)); do [ -f "$work/status" ] && break; sleep 1; done
    mkdir -p "$3/$2"; cp "$work/text" "$3/$2/"; cp -r "$work/out/." "$3/$2/"
    echo "== $2"; tail -c "${CHARACTERS:-3000}" "$work/text"
    [ -f "$work/status" ] || { echo "$2: still running"; exit 75; }
    exit "$(cat "$work/status")";;
esac
