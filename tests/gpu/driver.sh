#!/usr/bin/env bash
# Programs that use no PyTorch, on a real card: CUDA C++ with both kinds of runtime, CuPy, JAX, a server.
#   [ONLY=REGEX] [SECONDS_EACH=24] tests/gpu/driver.sh CARRY OUT
# Needs nvcc, and python3 with cupy and jax. CARRY holds strandline (the command). Results go to OUT. All run side by side:
# about a minute and a half. Nothing else may fill the card meanwhile: it is waited for, and said where it does not come free.
set -u
cd "$(dirname "$0")/../.."
carry=$(realpath "$1"); mkdir -p "$2"; out=$(realpath "$2")
work=$(mktemp -d)
py=${PYTHON:-python3}
export XDG_CACHE_HOME="$work/cache" PYTHONUNBUFFERED=1
chmod +x "$carry/strandline"
PATH=$PATH:/usr/local/cuda/bin
cuda=$(dirname "$(dirname "$(realpath "$(command -v nvcc)")")")
printf '== driver (%s)\n' "$(date +%H:%M:%S)"
for how in static shared; do
  nvcc -g -O1 -arch=native -cudart "$how" -Xlinker -rpath -Xlinker "$cuda/lib64:$cuda/lib" \
    -o "$work/job-$how" tests/gpu/driver/job.cu || echo "FAIL nvcc -cudart $how" &
done
wait
used() { nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits 2> /dev/null | head -1; }
for i in $(seq 60); do # a context or two of somebody's is no matter
  mib=$(used)
  [ "${mib:-0}" -gt 4096 ] || break
  [ "$i" = 1 ] && echo "others hold $mib MiB of the card: waiting for at most two minutes"
  sleep 2
done
mib=$(used)
[ "${mib:-0}" -le 4096 ] || echo "WARNING others still hold $mib MiB of the card: what fails below may be theirs"
so=$("$carry/strandline" doctor --library) # unpacks what it carries, once
for i in 1 2 3 4 5; do # ns of a cudaMallocAsync and its free: bare, recorded
  bare=$("$work/job-static" bench 0.5)
  recorded=$(cd "$work" && STRANDLINE_QUIET=1 STRANDLINE_OUT="$work/bench-$i.strand" LD_PRELOAD="$so" ./job-static bench 0.5)
  echo "pair of cudaMallocAsync and cudaFreeAsync, ns: bare $bare, recorded $recorded"
done 2>&1 | tee "$out/driver-cost.txt"
timeout 240 "$py" tests/gpu/driver/run.py "$carry/strandline" "$work/runs" "${SECONDS_EACH:-24}" "${ONLY:-.}" 2>&1 | tee "$out/driver.txt"
(cd "$work/runs" && for r in */; do mkdir -p "$out/driver/$r"; cp "$r/report.json" "$r/recorded/err" "$out/driver/$r" 2> /dev/null; done)
rm -rf "$work"
printf '== end (%s)\n' "$(date +%H:%M:%S)"
