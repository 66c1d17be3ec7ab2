"""`strandline.log_to` with the real W&B (offline), TensorBoard and MLflow (a folder), and the three under accelerate's trackers: what they were given
is read from their own files."""

import glob
import json
import os
import pathlib
import struct

import common
import mlflow
import strandline
import torch
import wandb
from accelerate import Accelerator
from strandline.accelerate import TrainingLoop
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter
from wandb.proto import wandb_internal_pb2

STEPS = 24
FIGURES = {"allocated_mib", "reserved_mib", "peak_allocated_mib", "growth_mib_per_step"}
FILES = {"strandline.html", "strandline.pickle"}
mlflow.set_tracking_uri(pathlib.Path("runs").absolute().as_uri())
os.environ.update(MLFLOW_ALLOW_FILE_STORE="true", WANDB_MODE="offline", WANDB_SILENT="true", WANDB_DIR=os.getcwd(), WANDB_CACHE_DIR=os.getcwd(), WANDB_DATA_DIR=os.getcwd())


def train(memory, also=lambda i: None, keeps=1):
    model = torch.nn.Linear(16, 16).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    with memory:
        for i in range(1, STEPS + 1):
            common.keep(keeps)
            model(torch.randn(2, 16, device="cuda")).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            also(i)
            memory.step()


def records(run):
    """What W&B's own file of an offline run has: records of LevelDB's log, in blocks of 32 KiB."""
    [path] = glob.glob(f"wandb/offline-run-*-{run.id}/run-{run.id}.wandb")
    data, at, whole = pathlib.Path(path).read_bytes(), 7, b""
    while at < len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        _, length, part = struct.unpack_from("<IHB", data, at)
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        # All of a record, or its last part.
        if part in (1, 4):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(whole)
            yield record
            whole = b""


def items(update):
    return {"/".join(i.nested_key) or i.key: json.loads(i.value_json) for i in update}


def history(run):
    return [items(r.history.item) for r in records(run) if r.WhichOneof("record_type") == "history"]


def of_wandb(run):
    """Its alerts, the last of its summary and the names of what is in its artifacts."""
    alerts, summary, files = [], {}, set()
    for record in records(run):
        kind = record.WhichOneof("record_type")
        if kind == "alert":
            alerts.append((record.alert.title, record.alert.text, record.alert.level))
        if kind == "summary":
            summary.update(items(record.summary.update))
        if kind == "artifact":
            files |= {entry.path for entry in record.artifact.manifest.contents}
        if kind == "request" and record.request.HasField("log_artifact"):
            files |= {entry.path for entry in record.request.log_artifact.artifact.manifest.contents}
    return alerts, summary, files


def of_board(folder):
    board = EventAccumulator(folder).Reload()
    scalars = {name: [(e.step, e.value) for e in board.Scalars(name)] for name in board.Tags()["scalars"]}
    texts = [e.tensor_proto.string_val[0].decode() for e in board.Tensors("strandline/verdict/text_summary")]
    return scalars, texts


def of_mlflow(run_id):
    client = mlflow.MlflowClient()
    run = client.get_run(run_id)
    series = {name: [(m.step, m.value) for m in client.get_metric_history(run_id, name)] for name in run.data.metrics}
    files = {os.path.basename(f.path) for f in client.list_artifacts(run_id, "strandline")}
    return series, run.data.tags, files


for wrong in (wandb, mlflow, object(), None):
    try:
        strandline.log_to(wrong)
        raise SystemExit(f"{wrong} passed")
    except strandline.Error as e:
        assert "log_to was given " in str(e) and "mlflow.start_run()" in str(e), e

# Not recorded: nothing is logged, and nothing of ours is loaded.
with SummaryWriter("none") as writer, common.stderr() as lines:
    train(strandline.log_to(writer))
assert EventAccumulator("none").Reload().Tags()["scalars"] == [] and lines == [] and not common.is_loaded(), lines

strandline.start("recording.strand", quiet=True)

# TensorBoard.
with SummaryWriter("board") as writer, common.stderr() as lines:
    train(strandline.log_to(writer))
scalars, texts = of_board("board")
assert {f"strandline/{name}" for name in FIGURES} <= scalars.keys(), scalars.keys()
allocated = scalars["strandline/allocated_mib"]
assert [step for step, _ in allocated] == [*range(1, STEPS + 1), STEPS], allocated
assert allocated[-1][1] - allocated[0][1] >= STEPS - 1, allocated
assert scalars["strandline/growth_mib_per_step"][-1][1] == 1.0, scalars
assert texts[-1].startswith("**growing** GROWING. Memory grows by 1 MiB every step"), texts
assert FILES <= set(os.listdir("board")) and "GROWING. Memory grows by 1 MiB every step" in common.said(lines), lines

# MLflow: the module's current run.
with mlflow.start_run() as run, common.stderr():
    train(strandline.log_to(mlflow, log_every=4))
series, tags, files = of_mlflow(run.info.run_id)
assert [step for step, _ in sorted(series["strandline/allocated_mib"])] == [4, 8, 12, 16, 20, 24, 24], series
assert tags["strandline.verdict"] == "growing" and tags["strandline.reason"].startswith("GROWING. "), tags
assert files == FILES, files

# W&B: the figures join the rows of the job, which keep their numbers.
with wandb.init(project="ours") as joined, common.stderr():
    train(strandline.log_to(joined), also=lambda i: joined.log({"loss": 1 / i}, step=10 * i))

# accelerate's trackers: its own log has the figures, once; the verdict and the files go to the tracker itself.
accelerator = Accelerator(cpu=True, log_with=["tensorboard", "wandb", "mlflow"], project_dir="tracked")
accelerator.init_trackers("all")
trackers = {tracker.name: tracker.tracker for tracker in accelerator.trackers}
with common.stderr():
    train(TrainingLoop(accelerator, log_every=4, artifacts=True))
accelerator.end_training()
scalars, texts = of_board("tracked/all")
assert [step for step, _ in scalars["strandline/allocated_mib"]] == [4, 8, 12, 16, 20, 24, 24], scalars
assert len(texts) == 1 and FILES <= set(os.listdir("tracked/all")), texts
series, tags, files = of_mlflow(trackers["mlflow"].info.run_id)
assert [step for step, _ in sorted(series["strandline/allocated_mib"])] == [4, 8, 12, 16, 20, 24, 24], series
assert tags["strandline.verdict"] == "growing" and files == FILES, (tags, files)

# Rows of their own, where the job logs nothing; without files. A device that will soon be full is said at once.
common.always_look()
with wandb.init(project="ours") as own, common.stderr():
    train(strandline.log_to(wandb, commit=True, artifacts=False), keeps=24)

# Only then W&B has written all that it was given.
wandb.teardown()
rows = history(joined)
assert [row["_step"] for row in rows] == [10 * i for i in range(1, STEPS + 1)], rows
assert [row["loss"] for row in rows] == [1 / i for i in range(1, STEPS + 1)], rows
assert [row["strandline/step"] for row in rows] == [*range(1, STEPS), STEPS], rows
assert all(row["strandline/allocated_mib"] <= row["strandline/reserved_mib"] for row in rows), rows
alerts, summary, files = of_wandb(joined)
[(title, text, level)] = alerts
assert title == "strandline: growing" and text.startswith("GROWING. ") and level == "WARN", alerts
assert files == FILES and summary["strandline/verdict"] == "growing", (files, summary)
alerts, _, files = of_wandb(trackers["wandb"])
assert len(alerts) == 1 and files == FILES, (alerts, files)
rows = history(own)
assert [row["strandline/step"] for row in rows] == [*range(1, STEPS + 1), STEPS], rows
kinds = [r.WhichOneof("record_type") for r in records(own)]
assert kinds.count("alert") == 1 and "history" in kinds[kinds.index("alert") :], kinds
assert not of_wandb(own)[2]
common.done()
