#!/bin/sh
# Reports when a step has ended: the whole report into the step's folder, its first sentence on srun's stderr.
#     srun --epilog=/etc/slurm/strandline/epilog.sh …                  or for all: SrunEpilog=… in slurm.conf
out=${STRANDLINE_OUT-}/$SLURM_JOB_ID.$SLURM_STEP_ID
[ -n "${STRANDLINE_OUT-}" ] && [ -d "$out" ] || exit 0
strandline report "$out" >"$out/report.txt" 2>&1
sed '/^  [a-zA-Z]/,$d' "$out/report.txt" >&2
