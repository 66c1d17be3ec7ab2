#!/usr/bin/env bash
# Which versions of PyTorch are attached to and recorded right, on the simulated device: a row of a Markdown table for each.
#
#     tests/versions.sh [VERSION…]      all that are known, without arguments
#
# Each version's unmodified wheel (0.5 to 0.9 GB) is downloaded into an environment of its own, which is removed
# after it; so this is no part of `cargo test`. `strandline` is the command to be tested (STRANDLINE_BIN, else PATH).
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
strandline=${STRANDLINE_BIN:-strandline}
versions=("$@")
[ ${#versions[@]} -gt 0 ] || versions=(2.4.1 2.5.1 2.6.0 2.7.1 2.8.0 2.9.1 2.10.0 2.11.0 2.12.1 2.13.0 2.14.1 2.15.0)
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
failed=0
header=--header
for version in "${versions[@]}"; do
    cache=$place/$version
    row() { echo "| $version | $1: $(tail -5 "$place/log" | tr '\n|' '  ')|"; failed=1; }
    if ! python=$(STRANDLINE_CACHE=$cache "$strandline" simulate --torch "$version" --python 2>"$place/log"); then
        row "not provided"
    elif ! LD_PRELOAD=$("$strandline" doctor --library) STRANDLINE_OUT=$place/$version.strand \
        "$python" "$here/versions/job.py" >"$place/said" 2>"$place/log"; then
        row "the job failed"
    elif ! "$strandline" report "$place/$version.strand" --format json >"$place/report" 2>"$place/log"; then
        row "no report"
    else
        "$python" "$here/versions/judge.py" "$place/said" "$place/report" $header || failed=1
        header=
    fi
    rm -rf "$cache"
done
exit $failed
