"""A loop of the program's own: it says where a step ends, and its logger is given figures of GPU memory."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Optional, TypeVar

from . import _library
from ._loggers import Logger, logger_of
from ._training import OnGrowth, Training

_S = TypeVar("_S", bound="Loop")


class Loop:
    """What counts the steps of a loop, and logs every `log_every` of them and at the end."""

    def __init__(self, log_every: int, steps: int, on_growth: OnGrowth, artifacts: bool) -> None:
        self._log_every = max(log_every, 1)
        self.steps = steps
        """Steps that have ended."""
        self._artifacts = artifacts
        self._training = Training(on_growth)

    def __enter__(self: _S) -> _S:
        self._training.begin()
        return self

    def step(self) -> bool:
        """A step has ended. True: save, and leave the loop; only with `on_growth="save_and_stop"`, and on all ranks alike."""
        self.steps += 1
        self._training.step(self.steps)
        if self.steps % self._log_every == 0:
            self._training.log(self._send)
        return self._training.should_stop(self.steps - 1)

    def __exit__(
        self, kind: Optional[type[BaseException]], raised: Optional[BaseException], where: Optional[TracebackType]
    ) -> None:
        if raised is None:
            self._training.log(self._send, last=True)
        self._training.end(self._loggers, self._artifacts)

    def _send(self, figures: dict[str, float]) -> None:
        raise NotImplementedError

    def _loggers(self) -> Sequence[Optional[Logger]]:
        raise NotImplementedError


class Log(Loop):
    """What `log_to` gives: call `step()` where a step of the loop has ended."""

    def __init__(self, logger: Logger, log_every: int, steps: int, on_growth: OnGrowth, artifacts: bool) -> None:
        super().__init__(log_every, steps, on_growth, artifacts)
        self._logger = logger

    def _send(self, figures: dict[str, float]) -> None:
        self._logger.figures(figures, self.steps)
        self._training.alert(self._logger)

    def _loggers(self) -> Sequence[Optional[Logger]]:
        return [self._logger]


def log_to(
    place: Any, *, log_every: int = 1, steps: int = 0, on_growth: OnGrowth = "log", artifacts: bool = True, commit: bool = False
) -> Log:
    """Gives figures of GPU memory to a run of Weights & Biases, a TensorBoard `SummaryWriter` or a run of MLflow.

        with strandline.log_to(run) as memory:
            for batch in batches:
                ...
                memory.step()

    `place` is the run, the writer, or the module `wandb` or `mlflow`, whose current run it is. Every `log_every` steps, and at the end, it
    is given `strandline/allocated_mib`, `reserved_mib`, `peak_allocated_mib`, `growth_mib_per_step`, and `steps_until_full` where that can
    be said; when the block ends the verdict and, unless `artifacts` is false, the page and a memory_viz snapshot. `steps` were made
    before, where a training is resumed. `on_growth` is as for the callbacks (docs/trainers.md). `commit` makes a row of W&B's for each:
    otherwise the figures join the row that the program logs next.

    In a process that is not recorded nothing happens. Raises `strandline.Error` where `place` is none of these.
    """
    logger = logger_of(place, commit)
    if logger is None:
        name = getattr(place, "__name__", None) or f"a {type(place).__name__}"
        raise _library.Error(
            f"log_to was given {name}: it takes a run of Weights & Biases, a TensorBoard SummaryWriter, a run of MLflow, "
            "or the module wandb or mlflow while it has a run (wandb.init(), mlflow.start_run())"
        )
    return Log(logger, log_every, steps, on_growth, artifacts)
