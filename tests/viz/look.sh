#!/bin/sh
# Shows snapshots to PyTorch's own readers: memory_viz in a headless Chromium, every view, and _memory_viz.py.
#
#   tests/viz/look.sh DIR OUT SNAPSHOT...         (kinds.sh makes one of every kind)
#
# DIR holds what is not ours and not in this repository:
#   MemoryViz.js, process_alloc_data.js   from torch/utils/viz/ of the PyTorch repository
#   node_modules/                         npm install d3@7 puppeteer-core
#   _memory_viz.py                        from site-packages/torch/cuda/ of a PyTorch wheel (optional)
# Screenshots go to OUT. The status is 0 where no reader complained.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
[ $# -ge 3 ] || { sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2; }
dir=$1 out=$2
shift 2
mkdir -p "$out"
node "$here/look.mjs" --viz "$dir/MemoryViz.js" --process "$dir/process_alloc_data.js" \
  --d3 "$dir/node_modules/d3/dist/d3.js" --puppeteer "$dir/node_modules/puppeteer-core" \
  --chromium "${CHROMIUM:-/usr/bin/chromium}" --out "$out" "$@"
if [ -f "$dir/_memory_viz.py" ]; then
  for snapshot in "$@"; do
    case $snapshot in *.json) continue;; esac # it reads pickles only
    name=$(basename "$snapshot" .pickle)
    for view in stats trace; do
      "${PYTHON:-python3}" "$dir/_memory_viz.py" "$view" "$snapshot" >"$out/$name.$view.txt"
    done
    for view in trace_plot segment_plot; do
      "${PYTHON:-python3}" "$dir/_memory_viz.py" "$view" "$snapshot" -o "$out/$name.$view.html"
    done
    echo "$name: stats, trace, trace_plot and segment_plot of _memory_viz.py ended without an error"
  done
fi
