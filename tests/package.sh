#!/usr/bin/env bash
# The Python package, as a person installs it: a wheel with the library inside, in a clean virtual environment.
#
#     tests/package.sh        `strandline` is the command whose library goes in (STRANDLINE_BIN, else PATH)
#
# Needs the package index for setuptools, so it is no part of `cargo test`.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
strandline=${STRANDLINE_BIN:-strandline}
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cp -r "$here/tools/python" "$place/package"
python3 -m venv "$place/clean"
pip=("$place/clean/bin/python" -m pip --disable-pip-version-check -q)
python=("$place/clean/bin/python" -c)
cd "$place"

# Without the library: found by the command.
"${pip[@]}" install ./package
STRANDLINE_BIN=$strandline "${python[@]}" 'import strandline; print(strandline.version(), strandline.library_path())'

# With the library beside it: nothing else is needed.
cp "$("$strandline" doctor --library)" package/strandline/
"${pip[@]}" wheel --no-deps -w wheels ./package
"${pip[@]}" install --force-reinstall --no-deps wheels/*.whl
env -u STRANDLINE_BIN PATH=/usr/bin:/bin "${python[@]}" '
import os, sys, strandline
assert os.path.dirname(strandline.library_path()).startswith(sys.prefix), strandline.library_path()
assert strandline.step(1) is False, "nothing is recorded here"
try:
    strandline.start(colour="red")
    raise SystemExit("a misspelt setting passed")
except strandline.Error as e:
    assert "colour" in str(e)
print(strandline.version(), strandline.library_path())'
echo "the package installs, with and without the library inside"
