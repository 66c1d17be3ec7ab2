#!/bin/sh
# Records the eight jobs whose pages must be fit to show (a leak, growth, a clean run of 1,000 steps, a batch that does not fit, two ranks
# with one bad, 64 ranks, JAX's arrays, 30 million events) on the simulated device, makes their pages and those of two comparisons, and has
# page.mjs open each at three widths, dark and light. Screenshots go to OUT/shots: look at them.
#
#   tests/viz/pages.sh STRANDLINE PYTHON NODE OUT
#
# STRANDLINE is the command (a release build, for the large one), PYTHON has PyTorch on the simulated device (`strandline simulate --python`),
# NODE/node_modules what page.mjs names. Ten minutes on two cores.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
[ $# -eq 4 ] || { sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2; }
strandline=$(realpath "$1") python=$2 node=$3
mkdir -p "$4"
cd "$4"
export STRANDLINE_SIM_TOTAL="${STRANDLINE_SIM_TOTAL:-8GiB}"

run() { # NAME COMMAND…
  name=$1
  shift
  [ -d "rec/$name" ] || "$strandline" run --quiet -o "rec/$name" -- "$@" >"$name.txt" 2>&1 || echo "$name: exit status $?"
}
[ -d rec/leak ] || "$strandline" demo --simulated -o rec/leak >leak.txt 2>&1
run growing "$python" "$here/viz/pages.py" growing 90
run clean "$python" "$here/viz/pages.py" clean 1000
STRANDLINE_SIM_TOTAL=2GiB run oom "$python" "$here/python/oom.py" batch
run two "$python" "$here/fleet/job.py" even leaks
run five "$python" "$here/fleet/job.py" even wide leaks reserves lags
[ -d rec/ranks ] || "$python" "$here/fleet/grow.py" rec/five rec/ranks --ranks 64 --bad 17=2 --bad 30=3 --bad 40=4
cuda=$(dirname "$(find "$(dirname "$python")/../lib" -name 'libcudart.so.*' | head -1)")
cat >plugin.c <<'C'
#include <stddef.h>
int cudaMalloc(void **, size_t);
int cudaFree(void *);
void *xla_allocate(size_t n) { void *p = 0; return cudaMalloc(&p, n) ? 0 : p; }
void xla_deallocate(void *p) { cudaFree(p); }
C
cc -shared -fPIC -o xla_cuda_plugin.so plugin.c -L "$cuda" "-l:$(basename "$cuda"/libcudart.so.*)" "-Wl,-rpath,$cuda"
PLUGIN=$PWD/xla_cuda_plugin.so LD_LIBRARY_PATH=$cuda XLA_PYTHON_CLIENT_ALLOCATOR=platform run jax "$python" "$here/viz/pages.py" arrays 24
run large "$python" "$here/viz/pages.py" large 1000

for name in leak growing clean oom two ranks jax large; do "$strandline" report "rec/$name" --format html >"$name.html"; done
"$strandline" diff rec/leak@step:5 rec/leak@step:30 --format html >diff.html
"$strandline" diff base=rec/clean grows=rec/growing leaks=rec/leak --format html >runs.html
node "$here/viz/page.mjs" "$node" shots --leak --timed leak.html growing.html two.html ranks.html jax.html large.html || failed=1
node "$here/viz/page.mjs" "$node" shots --timed clean.html oom.html diff.html runs.html || failed=1
exit "${failed:-0}"
