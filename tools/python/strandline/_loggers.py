"""Where figures, the verdict and its files can go: a run of Weights & Biases, a TensorBoard writer, a run of MLflow (docs/trainers.md).

Nothing is imported here of what it is for: a program that has a run of it has imported it.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any, Optional, Protocol

from . import _library

# Verdicts that somebody is to hear of, and how loudly W&B says them.
_LEVELS = {"leak": "ERROR", "oom": "ERROR", "growing": "WARN"}

# Where launchers tell how many ranks there are, and which this is.
_LAUNCHERS = (("WORLD_SIZE", "RANK"), ("SLURM_NTASKS", "SLURM_PROCID"), ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"))


class Logger(Protocol):
    """One place that figures can go to."""

    def figures(self, values: Mapping[str, float], step: int) -> None:
        """The figures of a step, by name."""

    def verdict(self, verdict: str, sentence: str) -> None:
        """What is said of the job: `leak`, `growing`, `oom`, `clean` or `unknown`, and why. It may be said again."""

    def files(self, paths: Sequence[str]) -> None:
        """The page and the snapshot, which are deleted afterwards."""


class _WandB:
    def __init__(self, run: Any, commit: bool) -> None:
        self._run, self._commit = run, commit
        self._is_begun = False
        self._said = ""

    def figures(self, values: Mapping[str, float], step: int) -> None:
        if not self._is_begun:
            self._run.define_metric("strandline/step")
            self._run.define_metric("strandline/*", step_metric="strandline/step")
            self._is_begun = True
        # With `commit` off they join the row that the job logs next. A row of our own moves W&B's count of rows on, and rows that the
        # job then logs with a smaller number of its own would be dropped.
        self._run.log({**values, "strandline/step": step}, commit=self._commit)

    def verdict(self, verdict: str, sentence: str) -> None:
        self._run.summary["strandline/verdict"] = verdict
        if verdict in _LEVELS and verdict != self._said:
            self._said = verdict
            self._run.alert(title=f"strandline: {verdict}", text=sentence, level=_LEVELS[verdict])

    def files(self, paths: Sequence[str]) -> None:
        artifact = importlib.import_module("wandb").Artifact(f"strandline-{self._run.id}", type="strandline")
        for path in paths:
            artifact.add_file(path)
        self._run.log_artifact(artifact)


class _TensorBoard:
    def __init__(self, writer: Any) -> None:
        self._writer = writer
        self._step = 0

    def figures(self, values: Mapping[str, float], step: int) -> None:
        self._step = step
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def verdict(self, verdict: str, sentence: str) -> None:
        self._writer.add_text("strandline/verdict", f"**{verdict}** {sentence}", self._step)

    def files(self, paths: Sequence[str]) -> None:
        # TensorBoard shows no files: they lie beside its own. An older writer of tensorboardX has `logdir` alone.
        folder = getattr(self._writer, "log_dir", None) or getattr(self._writer, "logdir", None)
        if folder is not None and os.path.isdir(folder):
            for path in paths:
                shutil.copyfile(path, os.path.join(folder, os.path.basename(path)))


class _MLflow:
    def __init__(self, client: Any, run_id: str) -> None:
        self._client, self._run_id = client, run_id

    def figures(self, values: Mapping[str, float], step: int) -> None:
        self._client.log_batch(self._run_id, [self._metric(name, value, step) for name, value in values.items()])

    def _metric(self, name: str, value: float, step: int) -> Any:
        import time

        return importlib.import_module("mlflow.entities").Metric(name, value, int(time.time() * 1000), step)

    def verdict(self, verdict: str, sentence: str) -> None:
        self._client.set_tag(self._run_id, "strandline.verdict", verdict)
        self._client.set_tag(self._run_id, "strandline.reason", sentence)

    def files(self, paths: Sequence[str]) -> None:
        for path in paths:
            self._client.log_artifact(self._run_id, path, "strandline")


def _of_module(module: ModuleType, commit: bool) -> Optional[Logger]:
    """The run that a module has now."""
    package: Any = module
    if module.__name__ == "wandb" and package.run is not None:
        return _WandB(package.run, commit)
    if module.__name__ == "mlflow" and package.active_run() is not None:
        return _MLflow(package.MlflowClient(), package.active_run().info.run_id)
    return None


def logger_of(place: Any, commit: bool = False) -> Optional[Logger]:
    """The logger for a run or a writer; `None` where it is none that is known, or a module without a run."""
    if isinstance(place, ModuleType):
        return _of_module(place, commit)
    package = type(place).__module__.partition(".")[0]
    if package == "wandb" and hasattr(place, "define_metric"):
        return _WandB(place, commit)
    if package == "mlflow" and hasattr(place, "info"):
        return _MLflow(importlib.import_module("mlflow").MlflowClient(), place.info.run_id)
    # Lightning's own logger, which has a client and a run.
    if hasattr(place, "run_id") and hasattr(getattr(place, "experiment", None), "log_batch"):
        return _MLflow(place.experiment, place.run_id)
    if hasattr(place, "add_scalar") and hasattr(place, "add_text"):
        return _TensorBoard(place)
    return None


def _of_rank() -> str:
    """What tells the files of this process from those of the job's other ranks: nothing where there are none."""
    torch: Any = sys.modules.get("torch")
    group = getattr(torch, "distributed", None)
    if group is not None and group.is_available() and group.is_initialized():
        return f"-rank{group.get_rank()}" if group.get_world_size() > 1 else ""
    # Without a group a launcher may have told the rank.
    for world, rank in _LAUNCHERS:
        if os.environ.get(world, "").isdigit():
            is_alone = int(os.environ[world]) <= 1
            return "" if is_alone else f"-rank{os.environ[rank]}" if os.environ.get(rank, "").isdigit() else f"-{os.getpid()}"
    return ""


def hand_over(loggers: Iterable[Logger], recording: str, verdict: str, sentence: str, with_files: bool) -> None:
    """Gives each the verdict on a recording and, `with_files`, its page and its snapshot."""
    loggers = list(loggers)
    for logger in loggers:
        logger.verdict(verdict, sentence)
    if not loggers or not with_files:
        return
    with tempfile.TemporaryDirectory(prefix="strandline-") as folder:
        # Ranks may share a folder or a run.
        name = f"strandline{_of_rank()}"
        page, snapshot = os.path.join(folder, f"{name}.html"), os.path.join(folder, f"{name}.pickle")
        _library.ask("report", recording, "--format", "html", "-o", page)
        _library.ask("snapshot", recording, "-o", snapshot)
        for logger in loggers:
            logger.files([page, snapshot])
