#!/usr/bin/env bash
# Fetches PyTorch's own tests for tests/gpu/pytorch_tests.sh, into CARRY/pytorch-test (3 MiB) and CARRY/wheels. Nothing of it is committed.
#   tests/gpu/pytorch_fetch.sh CARRY [SOURCE]     SOURCE: a source tree of PyTorch; without it Debian's source package of SUITE (trixie: 2.6)
# and the tests of some libraries, from their source packages, into CARRY/NAME.
# Needs apt-get and pip. The tests are better of the version that the card machine has: give its tree as SOURCE where there is one.
set -eu
carry=$(realpath -m "$1"); source=${2:-}
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
if [ -z "$source" ]; then
  mkdir -p "$work/lists/partial"
  echo "deb-src ${DEBIAN:-http://deb.debian.org/debian} ${SUITE:-trixie} main" > "$work/list"
  options=(-qq -o "Dir::Etc::sourcelist=$work/list" -o Dir::Etc::sourceparts=- -o "Dir::State::Lists=$work/lists" -o APT::Sandbox::User=root)
  apt-get "${options[@]}" update
  (cd "$work" && apt-get "${options[@]}" --download-only source pytorch && tar -xJf pytorch_*.orig.tar.xz --wildcards '*/test/*.py' '*/tools/stats/*.py' '*/tools/__init__.py')
  source=$(ls -d "$work"/pytorch-*/ | head -1)
fi
to=$carry/pytorch-test
rm -rf "$to"; mkdir -p "$to/distributed" "$to/tools/stats" "$carry/wheels"
cd "$source/test"
cp test_cuda*.py test_autograd.py test_optim.py test_dataloader.py test_multiprocessing*.py test_nn.py test_modules.py "$to/"
cp -r autograd optim "$to/"
cp distributed/test_c10d_nccl.py distributed/test_c10d_common.py "$to/distributed/"
cp ../tools/__init__.py "$to/tools/"; cp ../tools/stats/*.py "$to/tools/stats/"
basename "$(realpath ..)" > "$to/VERSION"
python3 -m pip download -q --no-deps -d "$carry/wheels" expecttest hypothesis==6.135.32 attrs sortedcontainers
python3 -m pip download -q --no-deps --only-binary=:all: --python-version "${TARGET:-3.12}" -d "$carry/wheels" parameterized datasets==5.2.0 dill multiprocess diffusers==0.42.1 importlib_metadata
# Source packages, of the versions that the card machine has. pip would build them; only their tests are needed.
for package in cupy-14.2.0 accelerate-1.15.0 peft-0.21.0; do
  name=${package%-*}
  python3 - "$package" "$work/$package.tar.gz" <<'PY'
import os, re, sys, urllib.parse, urllib.request
from pip._internal.models.index import PyPI
package, to = sys.argv[1:]
page = f"{os.environ.get('PIP_INDEX_URL', PyPI.simple_url).rstrip('/')}/{package.rpartition('-')[0]}/"
with urllib.request.urlopen(page) as answer:
    links = re.findall(r'href="([^"#]+)', answer.read().decode())
link = next(l for l in links if l.endswith(f"/{package}.tar.gz"))
urllib.request.urlretrieve(urllib.parse.urljoin(page, link), to)
PY
  mkdir -p "$carry/$name"; tar -C "$carry/$name" --strip-components 1 -xzf "$work/$package.tar.gz" "$package/tests"
done
du -sh "$carry"
