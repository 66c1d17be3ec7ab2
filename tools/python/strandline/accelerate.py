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

from types import TracebackType
from typing import Any, Optional, Protocol

from ._training import OnGrowth, Training


class _Accelerator(Protocol):
    @property
    def sync_gradients(self) -> bool: ...

    def log(self, values: dict[str, Any], step: Optional[int] = None) -> None: ...


class TrainingLoop:
    """Marks the steps of a loop in the recording, and gives figures of GPU memory to `accelerator.log`.

    A step is a call of `step()` at which accelerate lets the optimizer run (`accelerator.sync_gradients`), so that with gradient
    accumulation it may be called after every batch. Every `log_every` steps, and at the end, `accelerator.log` is given
    `strandline/allocated_mib`, `reserved_mib`, `peak_allocated_mib` (of all devices that the process sees), `growth_mib_per_step`,
    and `steps_until_full` where that can be said. At the end one line on stderr says the verdict.

    `steps`: how many steps were made before, where a training is resumed. With `on_growth="save_and_stop"` `step()` says when to save
    and to leave the loop: a device will be full within 200 steps or 24 hours.

    In a process that is not recorded nothing happens.
    """

    def __init__(self, accelerator: _Accelerator, log_every: int = 50, steps: int = 0, on_growth: OnGrowth = "log") -> None:
        self._accelerator = accelerator
        self._log_every = max(log_every, 1)
        self.steps = steps
        """Steps that have ended."""
        self._training = Training(on_growth)

    def __enter__(self) -> TrainingLoop:
        self._training.begin()
        return self

    def step(self) -> bool:
        """A batch is done. True: save, and leave the loop; only with `on_growth="save_and_stop"`, and on all ranks alike."""
        if not self._accelerator.sync_gradients:
            return False
        self.steps += 1
        self._training.step(self.steps)
        if self.steps % self._log_every != 0:
            return False
        self._log(last=False)
        return self._training.should_stop()

    def __exit__(
        self, kind: Optional[type[BaseException]], raised: Optional[BaseException], where: Optional[TracebackType]
    ) -> None:
        if raised is None:
            self._log(last=True)
        self._training.end()

    def _log(self, last: bool) -> None:
        self._training.log(lambda figures: self._accelerator.log(figures, step=self.steps), last)
