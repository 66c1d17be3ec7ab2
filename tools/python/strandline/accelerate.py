"""For loops of one's own with accelerate (docs/trainers.md).

    from strandline.accelerate import TrainingLoop

    with TrainingLoop(accelerator) as loop:
        for batch in batches:
            with accelerator.accumulate(model):
                ...
                optimizer.step()
                loop.step()
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional, Protocol

from ._loggers import Logger, logger_of
from ._loop import Loop
from ._training import OnGrowth


class _Accelerator(Protocol):
    @property
    def sync_gradients(self) -> bool: ...

    @property
    def is_main_process(self) -> bool: ...

    @property
    def trackers(self) -> Sequence[Any]: ...

    def log(self, values: dict[str, Any], step: Optional[int] = None) -> None: ...


class TrainingLoop(Loop):
    """Marks the steps of a loop in the recording, and gives figures of GPU memory to `accelerator.log`.

    A step is a call of `step()` at which accelerate lets the optimizer run (`accelerator.sync_gradients`), so that with gradient
    accumulation it may be called after every batch. Every `log_every` steps, and at the end, `accelerator.log` is given
    `strandline/allocated_mib`, `reserved_mib`, `peak_allocated_mib` (of all devices that the process sees), `growth_mib_per_step`,
    and `steps_until_full` where that can be said. At the end one line on stderr says the verdict.

    `steps`: how many steps were made before, where a training is resumed. With `on_growth="save_and_stop"` `step()` says when to save
    and to leave the loop: a device will be full soon (docs/trainers.md).

    With `artifacts` the trackers that are W&B, TensorBoard or MLflow are given the verdict, the page and a memory_viz snapshot at the end.

    In a process that is not recorded nothing happens.
    """

    def __init__(
        self, accelerator: _Accelerator, log_every: int = 50, steps: int = 0, on_growth: OnGrowth = "log", artifacts: bool = False
    ) -> None:
        super().__init__(log_every, steps, on_growth, artifacts)
        self._accelerator = accelerator

    def step(self) -> bool:
        """A batch is done. True: save, and leave the loop; only with `on_growth="save_and_stop"`, and on all ranks alike."""
        return self._accelerator.sync_gradients and super().step()

    def _send(self, figures: dict[str, float]) -> None:
        self._accelerator.log(figures, step=self.steps)

    def _loggers(self) -> Sequence[Optional[Logger]]:
        # Of other ranks most trackers have no run.
        if not self._artifacts or not self._accelerator.is_main_process:
            return []
        return [logger_of(tracker.tracker) for tracker in self._accelerator.trackers]
