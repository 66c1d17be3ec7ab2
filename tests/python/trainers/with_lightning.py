"""Trainings of Lightning's Trainer, without the callback and with it. Where losses are compared the CPU computes them: the simulated
device computes nothing."""

import os

import common
import csv
import glob
import logging
import types
import warnings

import lightning.pytorch as pl
import strandline
import torch
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from strandline.lightning import StrandlineCallback
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

STEPS = 24
warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Module(pl.LightningModule):
    def __init__(self, keeps):
        super().__init__()
        self.model = torch.nn.Linear(16, 16)
        self.keeps = keeps

    def training_step(self, batch, index):
        if self.keeps:
            common.keep(self.keeps)
        loss = self.model(batch).square().mean()
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, index):
        self.log("val_loss", self.model(batch).square().mean())

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def batches(seed):
    return torch.utils.data.DataLoader(torch.randn(32, 16, generator=torch.Generator().manual_seed(seed)), batch_size=2)


def trainer(out, callbacks=(), keeps=0, steps=STEPS, device="cpu", resume=None):
    pl.seed_everything(1, verbose=False)
    it = pl.Trainer(
        accelerator=device,
        devices=1,
        default_root_dir=out,
        max_steps=steps,
        accumulate_grad_batches=2,
        log_every_n_steps=4,
        callbacks=list(callbacks),
        logger=[CSVLogger(out, version=0), TensorBoardLogger(out, name="board", version=0)],
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    it.fit(Module(keeps), batches(1), batches(2), ckpt_path=resume, weights_only=False)
    common.kept.clear()
    return it


def logged(out):
    with open(f"{out}/lightning_logs/version_0/metrics.csv") as file:
        rows = [{k: float(v) for k, v in row.items() if v} for row in csv.DictReader(file)]
    return [common.theirs(row) for row in rows if not common.ours(row)], [row for row in rows if common.ours(row)]


def weights(out):
    [path] = glob.glob(f"{out}/**/checkpoints/*.ckpt", recursive=True)
    return path.partition("/")[2], torch.load(path, weights_only=False)


def same(out, bare):
    assert logged(out)[0] == logged(bare)[0], (logged(out), logged(bare))
    (name, a), (bare_name, b) = weights(out), weights(bare)
    assert name == bare_name and a["global_step"] == b["global_step"] == STEPS, (name, bare_name)
    assert all(torch.equal(a["state_dict"][k], v) for k, v in b["state_dict"].items())
    assert a["callbacks"].keys() == b["callbacks"].keys(), a["callbacks"]
    names = [{n for n in common.files(out) if "tfevents" not in n} for out in (out, bare)]
    assert names[0] == names[1], names


trainer("bare")
with common.stderr() as lines:
    trainer("unrecorded", [StrandlineCallback()])
same("unrecorded", "bare")
assert logged("unrecorded")[1] == [] and lines == [] and not common.is_loaded(), lines

strandline.start("recording.strand", quiet=True)
with common.stderr() as lines:
    trainer("recorded", [StrandlineCallback()], keeps=1)
same("recorded", "bare")
rows = logged("recorded")[1]
assert [row["step"] for row in rows] == [4, 8, 12, 16, 20, 24, 24], rows
for row in rows:
    figures = common.ours(row)
    assert 0 < figures["allocated_mib"] <= figures["peak_allocated_mib"] <= figures["reserved_mib"], row
# Two batches are a step.
assert common.ours(rows[-1])["growth_mib_per_step"] == 2.0, rows
assert "GROWING. Memory grows by 2 MiB every step" in common.said(lines), lines
board = EventAccumulator("recorded/board/version_0").Reload()
assert [e.step for e in board.Scalars("strandline/allocated_mib")] == [row["step"] for row in rows]

with common.stderr() as lines, common.broken():
    trainer("broken", [StrandlineCallback()])
same("broken", "bare")
assert common.said(lines) == "strandline: this training is no longer watched: KeyError: 'mine'", lines

stopped = trainer("stopped", [StrandlineCallback(on_growth="save_and_stop")], keeps=8, steps=1000, device="gpu").global_step
assert 8 <= stopped < 100, stopped
it = trainer("resumed", [StrandlineCallback(artifacts=True)], steps=stopped + 4, device="gpu", resume=f"stopped/strandline-step={stopped}.ckpt")
assert it.global_step == stopped + 4
due = [n for n in range(stopped + 1, stopped + 5) if n % 4 == 0]
assert [row["step"] for row in logged("resumed")[1]] == [*due, stopped + 4], logged("resumed")
# With `artifacts` its loggers have the page and the snapshot, too: here TensorBoard's.
assert {"strandline.html", "strandline.pickle"} <= set(os.listdir("resumed/board/version_0"))


class Unreachable(CSVLogger):
    @property
    def experiment(self):
        raise ConnectionError("no server")


# A logger that fails after the last step fails nothing else.
callback = StrandlineCallback(artifacts=True)
callback.on_train_start(it, None)
ended = types.SimpleNamespace(loggers=[Unreachable("unreachable")], is_global_zero=True, global_step=0)
callback._log = lambda *_, **__: None
with common.stderr() as lines:
    callback.on_train_end(ended, None)
assert lines[-1] == "strandline: this training is no longer watched: ConnectionError: no server", lines
common.done()
