#!/usr/bin/env bash
# The wheel in plain roots of Debian and Ubuntu: pip installs it, the demo finds its leak, and a script of transformers' Trainer is recorded.
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
arguments = TrainingArguments("trained", max_steps=30, per_device_train_batch_size=2, report_to=[], disable_tqdm=True, save_strategy="no")
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
    grep -q '1.0 MiB more every step\|1 MiB more every step' said && grep -q 'train.py:10' said || { cat said; exit 1; }
    seconds "strandline run of a Trainer script, the $time time"
done
SHELL

for root in "$@"; do
    mkdir -p "$root/plain"
    cp "$wheel" "$work/train.py" "$work/inside.sh" "$root/plain/"
    # What this machine needs to reach an index.
    cp /etc/resolv.conf "$root/etc/resolv.conf"
    [ -z "${PIP_CERT:-}" ] || cp "$PIP_CERT" "$root/etc/ssl/certs/ca-certificates.crt"
    for place in proc dev; do
        mountpoint -q "$root/$place" || { mount --bind "/$place" "$root/$place"; mounted+=("$root/$place"); }
    done
    chroot "$root" /usr/bin/env -i ${PIP_CERT:+PIP_CERT=/etc/ssl/certs/ca-certificates.crt} ${PIP_INDEX_URL:+PIP_INDEX_URL="$PIP_INDEX_URL"} \
        LC_ALL=C.UTF-8 bash /plain/inside.sh
done
