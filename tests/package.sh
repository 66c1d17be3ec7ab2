#!/usr/bin/env bash
# The wheel, as a person gets it: `pip wheel` of the source distribution, in release, installed into a clean virtual environment, by uvx and by pipx.
#
#     tests/package.sh [FOLDER]       FOLDER keeps the source distribution and the wheel
#
# Builds in release, also by `cargo install` (minutes; PROFILE=dev builds quickly), and needs the package index for maturin, pytest and, where STRANDLINE_CACHE has none yet, PyTorch:
# so it is no part of `cargo test`, which builds a quick wheel in tests/package.rs.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
keep=${1:-$place/dist}
mkdir -p "$keep"
keep=$(cd "$keep" && pwd)
python3 -m venv "$place/build"
python3 -m venv "$place/clean"
pip=(-m pip --disable-pip-version-check -q)
"$place/build/bin/python" "${pip[@]}" install 'maturin>=1.8,<2'
(cd "$here" && "$place/build/bin/maturin" sdist -o "$keep")
cd "$place"

export MATURIN_PEP517_ARGS="--profile ${PROFILE:-release}"
# What pip does with it: its own environment, its own copy of the source.
"$place/build/bin/python" "${pip[@]}" wheel --no-deps -w "$keep" "$keep"/strandline-*.tar.gz
ls -l "$keep"
"$place/clean/bin/python" "${pip[@]}" install --no-index "$keep"/strandline-*.whl

# The command alone.
cargo install --locked --path "$here/tools" --profile "${PROFILE:-release}" --root "$place/cargo"
"$place/cargo/bin/strandline" --version
cargo uninstall --root "$place/cargo" strandline-tools
test ! -e "$place/cargo/bin/strandline"

# Nothing else is needed.
unset STRANDLINE_BIN LD_PRELOAD PYTHONPATH
export PATH=$place/clean/bin:/usr/bin:/bin XDG_CACHE_HOME=$place/cache
strandline --version
python -c 'import strandline; print(strandline.command(), strandline.library_path())'
python "${pip[@]}" install pytest
pytest --markers | grep limit_gpu_leaks

# A job on the simulated device, and the demo.
cat > train.py <<'PYTHON'
import torch

kept, model = [], torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(40):
    loss = model(torch.randn(8, 64, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    kept.append(torch.zeros(1 << 20, dtype=torch.uint8, device="cuda"))
PYTHON
strandline run --simulate 24GiB -o out train.py 2>&1 | tee said
grep -q 'train.py:10' said
strandline demo --simulated -o demo 2>&1 | tee said
grep -q 'strandline: LEAK' said

# Without an environment of one's own, and away again.
"$place/build/bin/python" "${pip[@]}" install uv pipx
mkdir wheel && cp "$keep"/strandline-*.whl wheel
export UV_CACHE_DIR=$place/uv PIPX_HOME=$place/pipx PIPX_BIN_DIR=$place/pipx/bin PATH=$place/build/bin:$PATH
uvx --from ./wheel/strandline-*.whl strandline run --simulate 24GiB -o uvx train.py 2>&1 | tee said
grep -q 'train.py:10' said
pipx install ./wheel/strandline-*.whl
"$place/pipx/bin/strandline" report uvx | grep -q 'train.py:10'
"$place/clean/bin/python" "${pip[@]}" uninstall -y strandline
test ! -e "$place/clean/bin/strandline"
echo "the wheel installs, runs a job and finds the demo's leak; uvx, pipx and cargo install it; it is gone when it is uninstalled"
