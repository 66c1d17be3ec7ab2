#!/usr/bin/env bash
# The wheel in plain roots of Debian and Ubuntu: pip installs it, the demo finds its leak, a script of transformers' Trainer is recorded, and the
# commands of README.md are run word for word, but for those that `left_out` below names.
#
#     tests/plain_roots.sh WHEEL ROOT...
#
# A ROOT is what debootstrap makes, with Python 3.11 or newer and the C compiler that the simulated device needs:
#
#     debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates,gcc,libc6-dev trixie debian
#     debootstrap --variant=minbase --components=main,universe --include=python3,python3-venv,ca-certificates,gcc,libc6-dev noble ubuntu
#
# debootstrap of Debian 12 has no noble: name jammy as its script (a last argument), and Ubuntu's keys (package ubuntu-keyring of Debian 13, --keyring).
#
# Needs root, for chroot, and the package index: the first run in a root downloads PyTorch and transformers, so each command is run twice, and the
# second time is told too. It is no part of `cargo test`. On 26 November 2026 (a897ae8's wheel by tests/package.sh, two cores with other work on
# them) it ran to its end in Debian 12, Debian 13 and Ubuntu 24.04. Seconds, with the downloads and without:
#
#                                        Debian 12    Debian 13    Ubuntu 24.04
#     pip install                            0            0             0
#     strandline demo                     59    9      39   12       70   13
#     run of a Trainer script              4    6       7    9        9    7
#
# `strandline simulate --with-transformers`, which the Trainer's script needs, downloaded for 11 to 29 s.
#
# On 30 November 2026 (0f57287a's wheel, nothing else running) it ran to its end, the 14 commands of README.md included, all with exit status 0: in
# Debian 12 with 0, 8 and 4 s without downloads (0, 35 and 4 with), in Ubuntu 24.04 with 0, 7 and 4 s (0, 37 and 4).
set -euo pipefail
wheel=$(realpath "$1")
shift
work=$(mktemp -d)
mounted=()
clean() {
    for place in "${mounted[@]}"; do umount "$place"; done
    rm -rf "$work"
}
trap clean EXIT

cat > "$work/train.py" <<'PYTHON'
import sys

import torch
from transformers import Trainer, TrainingArguments

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.seen = torch.nn.Linear(64, 64), []

    def forward(self, x, labels=None):
        self.seen.append(torch.zeros(1 << 20, dtype=torch.uint8, device=x.device))
        return {"loss": self.layer(x).square().mean()}

rows = [{"x": torch.randn(64), "labels": torch.zeros(1)} for _ in range(64)]
# README.md's `--batch_size 8`, and a step 200 for `REC@step:200`.
batch = int(sys.argv[-1]) if "--batch_size" in sys.argv else 2
arguments = TrainingArguments("trained", max_steps=210, per_device_train_batch_size=batch, report_to=[], disable_tqdm=True, save_strategy="no")
Trainer(Model(), arguments, train_dataset=rows).train()
PYTHON

cat > "$work/inside.sh" <<'SHELL'
set -euo pipefail
cd /plain
export HOME=/plain PATH=/plain/venv/bin:/usr/bin:/bin
. /etc/os-release
rm -rf venv demo-* out-* && python3 -m venv venv
begun=$(date +%s%N)
seconds() { echo "$PRETTY_NAME, $1: $(( ($(date +%s%N) - begun) / 1000000000 )) s"; begun=$(date +%s%N); }
pip install -q --disable-pip-version-check --no-index ./*.whl
seconds "pip install"
strandline --version
for time in first second; do
    begun=$(date +%s%N)
    strandline demo --simulated -o "demo-$time" > said 2>&1 || { cat said; exit 1; }
    grep -q 'strandline: LEAK. .*activation_offloading.py' <(tr '\n' ' ' < said) || { cat said; exit 1; }
    seconds "strandline demo, the $time time"
done
for time in first second; do
    begun=$(date +%s%N)
    strandline simulate --with-transformers > said 2>&1 || { cat said; exit 1; }
    seconds "strandline simulate --with-transformers, the $time time"
done
for time in first second; do
    begun=$(date +%s%N)
    strandline run --simulate 24GiB -o "out-$time" train.py > said 2>&1 || { cat said; exit 1; }
    grep -q 'emory grows by 1\(\.0\)\? MiB every step' said && grep -q 'train.py:12' said || { cat said; exit 1; }
    seconds "strandline run of a Trainer script, the $time time"
done

# README.md's commands, in its order, after the one that makes their recording.
left_out() {
    case $1 in
        "strandline run train.py" | "strandline run --alert-oom-within "* | "strandline run --fail-on-leak -- pytest tests/gpu") echo "needs a GPU" ;;
        "cargo run --release -- demo" | "cargo test "* | "cargo install --locked --path tools" | .ci/tests | "pip install .") echo "needs the source and Rust" ;;
        "pytest --strandline") echo "needs pytest and a GPU" ;;
        "strandline doctor -- python train.py") echo "needs a GPU, and says so" ;;
        "strandline top") echo "needs a terminal and a running job" ;;
        "strandline run" | "strandline snapshot") echo "names a command in a sentence" ;;
        *) return 1 ;;
    esac
}
rm -rf readme && mkdir readme && cp train.py readme/ && cd readme
first="strandline run --simulate 24GiB train.py"
python - ../README.md > commands <<'PYTHON'
import re
import sys

shown = re.sub("```text\n.*?```", "", open(sys.argv[1]).read(), flags=re.DOTALL)
fenced = [line for block in re.findall("```(?:sh|console)?\n(.*?)```", shown, re.DOTALL) for line in block.splitlines()]
code = fenced + re.findall("`([^`\n]+)`", re.sub("```.*?```", "", shown, flags=re.DOTALL))
print(*dict.fromkeys(c for c in code if re.match(r"(strandline|cargo|pip|pytest|python)( |$)|\.ci/", c)), sep="\n")
PYTHON
grep -qxF "$first" commands
count=0
while read -r command; do
    if reason=$(left_out "$command"); then echo "left out: $command ($reason)"; continue; fi
    bash -c "$command" < /dev/null > said 2>&1 || { echo "$command: exit $?"; cat said; exit 1; }
    count=$((count + 1))
    # The names that README.md gives to recordings are folders beside it.
    [ "$command" != "$first" ] || for name in DIR BASE NEW REC runs/base runs/patch demo; do mkdir -p "$name" && cp -r strandline/*/. "$name"; done
done < <(echo "$first"; grep -vxF "$first" commands)
[ "$count" -ge 14 ] || { echo "only $count commands of README.md"; exit 1; }
seconds "$count commands of README.md"
SHELL

for root in "$@"; do
    mkdir -p "$root/plain"
    cp "$wheel" "$work/train.py" "$work/inside.sh" "$(dirname "$0")/../README.md" "$root/plain/"
    # What this machine needs to reach an index.
    cp /etc/resolv.conf "$root/etc/resolv.conf"
    [ -z "${PIP_CERT:-}" ] || cp "$PIP_CERT" "$root/etc/ssl/certs/ca-certificates.crt"
    for place in proc dev; do
        mountpoint -q "$root/$place" || { mount --bind "/$place" "$root/$place"; mounted+=("$root/$place"); }
    done
    chroot "$root" /usr/bin/env -i ${PIP_CERT:+PIP_CERT=/etc/ssl/certs/ca-certificates.crt} ${PIP_INDEX_URL:+PIP_INDEX_URL="$PIP_INDEX_URL"} \
        LC_ALL=C.UTF-8 bash /plain/inside.sh
done
