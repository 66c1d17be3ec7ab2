"""A callback for transformers' Trainer, and for trainers that are made of it, such as TRL's (docs/trainers.md).

    from strandline.transformers import StrandlineCallback

    Trainer(..., callbacks=[StrandlineCallback()])
"""
# Without transformers its name is this very file's to pyright.
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

import contextlib
import sys
from types import FrameType
from typing import Any, Optional

from ._loggers import Logger, logger_of
from ._training import OnGrowth, Training

try:
    from transformers import TrainerCallback
except ImportError as e:
    raise ImportError(f"strandline.transformers needs transformers, which cannot be imported ({e}): pip install transformers") from e

# How many functions, ours among them, lie between the list of callbacks and what looks for it, and some more.
_CALLERS = 10


class StrandlineCallback(TrainerCallback):
    """Marks the Trainer's own steps, epochs and evaluations in the recording, and adds figures of GPU memory to its log.

    Steps are those of `state.global_step`, whatever the gradient accumulation. To what the Trainer logs with the loss, and at its
    end, it adds `strandline/allocated_mib`, `reserved_mib`, `peak_allocated_mib` (of all devices that the process sees),
    `growth_mib_per_step`, and `steps_until_full` where that can be said. At the end one line on stderr says the verdict.

    `on_growth="save_and_stop"` saves a checkpoint and ends the training where a device will be full soon (docs/trainers.md).

    With `artifacts` what it reports to (W&B, TensorBoard, MLflow) is given the verdict, the page and a memory_viz snapshot at the end.

    In a process that is not recorded nothing happens.
    """

    def __init__(self, on_growth: OnGrowth = "log", artifacts: bool = False) -> None:
        self._artifacts = artifacts
        self._training = Training(on_growth)

    def on_init_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._come_first()

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._come_first()
        self._training.begin()

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._training.mark(f"epoch {int(state.epoch or 0) + 1}")

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._training.phase(None)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._training.step(state.global_step)
        if self._training.should_stop(state.global_step - 1):
            control.should_save = control.should_training_stop = True

    def on_prediction_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._training.phase("eval")

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._training.phase(None)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if not isinstance(logs, dict) or not ("loss" in logs or "train_runtime" in logs):
            return

        def send(figures: dict[str, float]) -> None:
            logs.update(figures)
            # The Trainer has put a copy of it there.
            state.log_history[-1].update(figures)

        self._training.log(send, last="train_runtime" in logs)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # Callbacks of loggers, behind this one, close what they have at the end.
        def loggers() -> list[Optional[Logger]]:
            others = getattr(self._handler(), "callbacks", ()) if self._artifacts else ()
            return [logger_of(getattr(other, name, None)) for other in others for name in ("tb_writer", "_wandb", "_ml_flow")]

        self._training.end(loggers)

    def _come_first(self) -> None:
        # Callbacks are given what is logged one after another, and those of loggers stand before the user's. Their list is gone
        # through just now: it gets another list.
        # Where that fails, figures are logged after the loggers, and the training goes on.
        with contextlib.suppress(Exception):
            handler = self._handler()
            if handler is not None and handler.callbacks[0] is not self:
                handler.callbacks = [self, *(c for c in handler.callbacks if c is not self)]

    def _handler(self) -> Any:
        """The list of callbacks that calls this one just now: the `self` of a function that has called us."""
        frame: Optional[FrameType] = sys._getframe(1)
        for _ in range(_CALLERS):
            if frame is None:
                break
            it = frame.f_locals.get("self")
            callbacks = getattr(it, "callbacks", None)
            if isinstance(callbacks, list) and any(c is self for c in callbacks):
                return it
            frame = frame.f_back
        return None
