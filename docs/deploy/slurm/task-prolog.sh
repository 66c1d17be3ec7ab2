#!/bin/sh
# Records each task of a step if STRANDLINE_OUT is set, with no change to its command: into STRANDLINE_OUT/<job>.<step>, on a file system that
# all nodes share. With OTEL_METRICS_EXPORTER=otlp one watcher on each node pushes metrics while the step runs.
#     srun --task-prolog=/etc/slurm/strandline/task-prolog.sh …        or for all: TaskProlog=… in slurm.conf
# Slurm puts `export NAME=value` of what a task prolog prints into the task's environment. A task whose prolog prints nothing runs as it is.
[ -n "${STRANDLINE_OUT-}" ] || exit 0
library=$(strandline doctor --library 2>/dev/null) || exit 0
out=$STRANDLINE_OUT/$SLURM_JOB_ID.$SLURM_STEP_ID
echo "export LD_PRELOAD=${LD_PRELOAD:+$LD_PRELOAD:}$library"
echo "export STRANDLINE_OUT=$out"
[ "$SLURM_LOCALID" = 0 ] && [ "${OTEL_METRICS_EXPORTER-}" = otlp ] || exit 0
(umask 077 && mkdir -p "$out")
attributes=run=$SLURM_JOB_ID,node=$SLURMD_NODENAME
export OTEL_RESOURCE_ATTRIBUTES="${OTEL_RESOURCE_ATTRIBUTES:+$OTEL_RESOURCE_ATTRIBUTES,}$attributes"
# A session of its own: Slurm ends the prolog's process group. The watcher ends with the step.
setsid strandline watch "$out" </dev/null >/dev/null 2>&1 &
