"""Trainings of transformers' Trainer, without the callback and with it. Where losses are compared the CPU computes them: the simulated
device computes nothing."""

import glob
import inspect

import common
import strandline
import torch
from strandline.transformers import StrandlineCallback
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

STEPS = 24
rows = [{"input_ids": torch.arange(i, i + 16) % 64, "labels": torch.arange(i, i + 16) % 64} for i in range(32)]
UNLIKE = ["tfevents", "trainer_state.json", "training_args.bin"]


def trainer(out, callbacks=None, keeps=0, steps=STEPS, cpu=True, **settings):
    set_seed(1)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0))
    if keeps:
        model.register_forward_hook(lambda module, _, output: common.keep(keeps) if module.training else None)
    every = {"eval_strategy": "steps", "eval_steps": 8, "save_steps": 12, "logging_steps": 4, "logging_dir": f"{out}/logs"}
    every = {k: v for k, v in {**every, **settings}.items() if k in inspect.signature(TrainingArguments).parameters}
    arguments = TrainingArguments(
        out, max_steps=steps, per_device_train_batch_size=2, gradient_accumulation_steps=2, report_to=["tensorboard"], disable_tqdm=True, use_cpu=cpu, **every
    )
    return Trainer(model, arguments, train_dataset=rows, eval_dataset=rows[:4], callbacks=callbacks)


def trained(out, callbacks=None, keeps=0, **settings):
    it = trainer(out, callbacks, keeps, **settings)
    it.train()
    common.kept.clear()
    return it.state.log_history


def same(log, out, bare, bare_out):
    assert [common.theirs(row) for row in log] == [common.theirs(row) for row in bare], (log, bare)
    a, b = common.files(out, UNLIKE), common.files(bare_out, UNLIKE)
    # The folder of TensorBoard's file has the time in its name.
    assert a.keys() - b.keys() <= {n for n in a if "tfevents" in n}, (a, b)
    assert all(digest == b[name] for name, digest in a.items() if name in b), (a, b)
    assert len(a) == len(b), (a, b)


bare = trained("bare")
assert len(bare) == 10, bare

# Not recorded: nothing happens.
with common.stderr() as lines:
    log = trained("unrecorded", [StrandlineCallback()])
same(log, "unrecorded", bare, "bare")
assert not any(common.ours(row) for row in log) and lines == [] and not common.is_loaded(), (log, lines)

strandline.start("recording.strand", quiet=True)
with common.stderr() as lines:
    log = trained("recorded", [StrandlineCallback()], keeps=1)
same(log, "recorded", bare, "bare")
for row in log:
    figures = common.ours(row)
    if "loss" in row or "train_runtime" in row:
        assert 0 < figures["allocated_mib"] <= figures["peak_allocated_mib"] <= figures["reserved_mib"], row
        assert figures["growth_mib_per_step"] >= 0, row
    else:
        assert not figures, row
# Two batches are a step.
assert common.ours(log[-1])["growth_mib_per_step"] == 2.0, log[-1]
assert "GROWING. Memory grows by 2 MiB every step" in common.said(lines), lines

# The Trainer's own loggers were given the same.
board = EventAccumulator(glob.glob("recorded/**/*tfevents*", recursive=True)[0].rpartition("/")[0]).Reload()
shown = [(e.step, e.value) for e in board.Scalars("train/strandline/allocated_mib")]
logged = [(row["step"], common.ours(row)["allocated_mib"]) for row in log if common.ours(row)]
assert [s for s, _ in shown] == [s for s, _ in logged], (shown, logged)
assert all(abs(a - b) < 1e-3 for (_, a), (_, b) in zip(shown, logged)), (shown, logged)

# One that fails says so once, and the training goes on.
with common.stderr() as lines, common.broken():
    log = trained("broken", [StrandlineCallback()])
same(log, "broken", bare, "bare")
assert common.said(lines) == "strandline: this training is no longer watched: KeyError: 'mine'", lines

# Before the device is full a checkpoint is saved, from which the training goes on; also where nothing is logged by then.
it = trainer("stopped", [StrandlineCallback(on_growth="save_and_stop")], keeps=8, cpu=False, save_steps=1000, eval_steps=1000, logging_steps=1000, steps=1000)
it.train()
common.kept.clear()
stopped = it.state.global_step
assert 8 <= stopped < 100, stopped
it = trainer("stopped", [StrandlineCallback(artifacts=True)], cpu=False, save_steps=1000, eval_steps=1000, steps=stopped + 4)
it.train(resume_from_checkpoint=True)
assert it.state.global_step == stopped + 4 and it.state.log_history[0]["step"] > stopped, it.state.log_history
# With `artifacts` what it reports to has the page and the snapshot, too, once.
assert len(glob.glob("stopped/**/strandline.html", recursive=True)) == len(glob.glob("stopped/**/strandline.pickle", recursive=True)) == 1

try:
    StrandlineCallback(on_growth="explode")
    raise SystemExit("'explode' passed")
except strandline.Error:
    pass
common.done()
