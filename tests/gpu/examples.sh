#!/usr/bin/env bash
# Training programs of pytorch/examples on a card, as they are, bare and recorded: the same exit status and as many lines.
#   [RUNS=3] tests/gpu/examples.sh CARRY OUT
# CARRY: strandline, and examples/ with dcgan, imagenet, vae and mnist_rnn of github.com/pytorch/examples. Images are drawn; of ImageNet's
# dummies fewer are made. cuDNN's benchmark is on in dcgan and imagenet.
set -u
carry=$(realpath "$1"); mkdir -p "$2"; out=$(realpath "$2"); py=${PYTHON:-python3}; work=$(mktemp -d)
export XDG_CACHE_HOME=$work/cache
chmod +x "$carry/strandline"; : > "$out/examples.txt"
cp -r "$carry/examples" "$work/examples"; cd "$work/examples"
sed -i 's/1281167/6000/; s/50000/500/' imagenet/main.py
"$py" - <<'P'
import os, random, struct
folder = "data/MNIST/raw"
os.makedirs(folder)
for name, n in (("train", 6000), ("t10k", 1000)):
    with open(f"{folder}/{name}-images-idx3-ubyte", "wb") as f:
        f.write(struct.pack(">IIII", 2051, n, 28, 28) + random.Random(1).randbytes(n * 784))
    with open(f"{folder}/{name}-labels-idx1-ubyte", "wb") as f:
        f.write(struct.pack(">II", 2049, n) + bytes(i % 10 for i in range(n)))
P
mkdir -p vae/results
arguments() {
  case $1 in
    dcgan) echo "--dataset fake --accel --niter 6 --manualSeed 1 --outf ." ;;
    imagenet) echo "--dummy --epochs 1 -b 64 -j 4 --seed 1" ;;
    vae) echo "--epochs 3" ;;
    mnist_rnn) echo "--accel --epochs 2" ;;
  esac
}
one() { # EXAMPLE RUN
  local e=$1 n=$2 b r
  for how in bare recorded; do cp -r "$e" "$e-$n-$how"; done
  (cd "$e-$n-bare" && timeout 200 "$py" main.py $(arguments "$e") > out.txt 2> err.txt); b=$?
  (cd "$e-$n-recorded" && timeout 200 "$carry/strandline" run -o rec -- "$py" main.py $(arguments "$e") > out.txt 2> err.txt); r=$?
  lines=$(wc -l < "$e-$n-bare/out.txt")/$(wc -l < "$e-$n-recorded/out.txt")
  verdict=$(grep -m1 -E '^strandline: [A-Z][A-Z ]+' "$e-$n-recorded/err.txt" | cut -c1-100)
  [ $b = $r ] && [ $b = 0 ] && [ "${lines%/*}" = "${lines#*/}" ] && k=ok || k=BAD
  case $verdict in "strandline: LEAK"*) k=BAD ;; esac
  echo "$k $e $n exit $b/$r lines $lines $verdict" >> "$out/examples.txt"
  [ $k = ok ] || tail -n 5 "$e-$n-recorded/err.txt" "$e-$n-bare/err.txt" | cut -c1-300
}
for n in $(seq "${RUNS:-3}"); do
  for e in dcgan imagenet vae mnist_rnn; do one $e "$n" & done
  wait
done
sort "$out/examples.txt"; rm -rf "$work"
! grep -q ^BAD "$out/examples.txt"
