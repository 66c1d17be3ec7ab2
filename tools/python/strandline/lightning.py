"""A callback for Lightning's Trainer (docs/trainers.md).

    from strandline.lightning import StrandlineCallback

    Trainer(..., callbacks=[StrandlineCallback()])
"""
# Without lightning its name is this very file's to pyright.
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

import os
from typing import Any, Optional

from ._loggers import Logger, logger_of
from ._training import OnGrowth, Training

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:
    try:
        from pytorch_lightning.callbacks import Callback
    except ImportError as e:
        raise ImportError(f"strandline.lightning needs lightning, which cannot be imported ({e}): pip install lightning") from e


class StrandlineCallback(Callback):
    """Marks Lightning's own steps, epochs, validations, tests and predictions in the recording, and gives figures of GPU memory to its loggers.

    Steps are those of `trainer.global_step`, whatever the gradient accumulation. Every `log_every_n_steps` steps, and at the end,
    each logger is given `strandline/allocated_mib`, `reserved_mib`, `peak_allocated_mib` (of all devices that the process sees),
    `growth_mib_per_step`, and `steps_until_full` where that can be said. At the end one line on stderr says the verdict.

    `on_growth="save_and_stop"` saves a checkpoint, `strandline-step=N.ckpt` below `default_root_dir`, and ends the training where a
    device will be full soon (docs/trainers.md).

    With `artifacts` those of its loggers that are W&B, TensorBoard or MLflow are given the verdict, the page and a memory_viz snapshot at
    the end.

    In a process that is not recorded nothing happens.
    """

    def __init__(self, on_growth: OnGrowth = "log", artifacts: bool = False) -> None:
        super().__init__()
        self._artifacts = artifacts
        self._training = Training(on_growth)
        self._last_step = 0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._last_step = trainer.global_step
        self._training.begin()

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        self._training.mark(f"epoch {trainer.current_epoch + 1}")

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        step = trainer.global_step
        if step == self._last_step:
            return
        self._training.step(step)
        # With several optimizers a batch is several steps.
        is_due = step // trainer.log_every_n_steps > self._last_step // trainer.log_every_n_steps if trainer.log_every_n_steps else False
        before, self._last_step = self._last_step, step
        if is_due:
            self._log(trainer, last=False)
        if self._training.should_stop(before):
            trainer.save_checkpoint(os.path.join(trainer.default_root_dir, f"strandline-step={step}.ckpt"))
            trainer.should_stop = True

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        self._training.phase("eval")

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        self._training.phase(None)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._log(trainer, last=True)
        # Of other ranks the loggers are dummies. MLflow's knows its run, of others it is the experiment that is known, which a logger
        # may begin only now.
        def loggers() -> list[Optional[Logger]]:
            all = trainer.loggers if self._artifacts and trainer.is_global_zero else []
            return [logger_of(place) for logger in all for place in (logger, logger.experiment)]

        self._training.end(loggers)

    def _log(self, trainer: Any, last: bool) -> None:
        # Not through `pl_module.log`, which puts each figure on the device.
        def send(figures: dict[str, float]) -> None:
            for logger in trainer.loggers:
                logger.log_metrics(figures, step=trainer.global_step)

        self._training.log(send, last)
