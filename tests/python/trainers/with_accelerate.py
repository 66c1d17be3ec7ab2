"""Loops with accelerate, without strandline and with it. Where losses are compared the CPU computes them: the simulated device computes
nothing."""

import common
import contextlib

import strandline
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState, PartialState
from accelerate.utils import set_seed
from strandline.accelerate import TrainingLoop
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

BATCHES = 48


def trained(out, watch=True, keeps=0, batches=BATCHES, cpu=True, **settings):
    """Losses, and the loop; ends where it says so."""
    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()
    set_seed(1)
    accelerator = Accelerator(cpu=cpu, gradient_accumulation_steps=2, log_with="tensorboard", project_dir=out)
    accelerator.init_trackers("board")
    model = torch.nn.Linear(16, 16)
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer = accelerator.prepare(model, optimizer)
    losses = []
    with TrainingLoop(accelerator, log_every=4, **settings) if watch else contextlib.nullcontext() as loop:
        for i in range(batches):
            with accelerator.accumulate(model):
                if keeps:
                    common.keep(keeps)
                loss = model(torch.randn(2, 16).to(accelerator.device)).square().mean()
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
                losses.append(loss.item())
                accelerator.log({"loss": losses[-1]}, step=i)
                if loop is not None and loop.step():
                    break
    common.kept.clear()
    accelerator.end_training()
    return losses, loop


def shown(out):
    """What TensorBoard was given, by name, as step and value."""
    board = EventAccumulator(f"{out}/board").Reload()
    return {name: [(e.step, e.value) for e in board.Scalars(name)] for name in board.Tags()["scalars"]}


bare, _ = trained("bare", watch=False)
with common.stderr() as lines:
    losses, _ = trained("unrecorded")
assert losses == bare and shown("unrecorded") == shown("bare") and lines == [] and not common.is_loaded(), lines

strandline.start("recording.strand", quiet=True)
with common.stderr() as lines:
    losses, loop = trained("recorded", keeps=1)
logged = shown("recorded")
assert losses == bare and logged["loss"] == shown("bare")["loss"]
assert loop.steps == BATCHES // 2
for name in ("allocated_mib", "reserved_mib", "peak_allocated_mib", "growth_mib_per_step"):
    assert [step for step, _ in logged[f"strandline/{name}"]] == [4, 8, 12, 16, 20, 24, 24], logged
assert logged["strandline/growth_mib_per_step"][-1][1] == 2.0, logged
assert "GROWING. Memory grows by 2 MiB every step" in common.said(lines), lines

with common.stderr() as lines, common.broken():
    losses, _ = trained("broken")
assert losses == bare and shown("broken") == shown("bare")
assert common.said(lines) == "strandline: this training is no longer watched: KeyError: 'mine'", lines

_, loop = trained("stopped", keeps=8, batches=2000, cpu=False, on_growth="save_and_stop")
assert 8 <= loop.steps < 100, loop.steps
_, more = trained("resumed", batches=8, cpu=False, steps=loop.steps)
assert more.steps == loop.steps + 4 and shown("resumed")["strandline/allocated_mib"][-1][0] == more.steps
common.done()
