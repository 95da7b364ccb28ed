#!/usr/bin/env bash
# What a GPU machine is asked once it is there: speed, share of the peak, memory, and whether its numbers are
# those of a CPU. Everything it needs is this repository and an environment with its dependencies; nothing
# is downloaded, models are made from their configuration with random weights.
#
#   scripts/gpu_check.sh                     all of it, for a machine with one GPU (some minutes)
#   scripts/gpu_check.sh --dry               the same path with a tiny model on a CPU (a minute), no GPU needed
#
# RTRL_PYTHON names the Python to use, RTRL_GPU_CHECK_OUT a folder for the results (default: build/gpu-check),
# RTRL_GPU_PEAK the GPU's dense bfloat16 TFLOP/s where it is not known by its name.
# Prints one JSON document per measurement; exit 0 when all were made and the logprobs agree.
set -euo pipefail
cd "$(dirname "$0")/.."

python="${RTRL_PYTHON:-}"
if [[ -z "$python" ]]; then
  if [[ -x .venv/bin/python ]]; then python=.venv/bin/python; else python=python3; fi
fi
out="${RTRL_GPU_CHECK_OUT:-build/gpu-check}"
mkdir -p "$out"
export PYTHONPATH="$PWD" HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
export PYTORCH_ALLOC_CONF="${PYTORCH_ALLOC_CONF:-expandable_segments:True}"

measure() { # NAME ARGUMENTS...
  local name="$1"
  shift
  echo "gpu_check: $name" >&2
  "$python" scripts/gpu_check.py "$@" | tee "$out/$name.json"
}

if [[ "${1:-}" == "--dry" ]]; then
  measure agree-dry agree --size tiny --device cpu --length 256
  measure train-dry train --size tiny --device cpu --length 256 --tokens 1024 --steps 2
  exit 0
fi
if [[ $# -gt 0 ]]; then
  echo "usage: scripts/gpu_check.sh [--dry]" >&2
  exit 2
fi

nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv >&2
measure agree agree --size 1b --length 2048
for size in 1b 4b; do
  for length in 16384 65536; do
    measure "train-$size-$length" train --size "$size" --length "$length" --tokens 65536
  done
done
measure train-1b-16384-compiled train --size 1b --length 16384 --tokens 65536 --compile
measure train-1b-16384-kept train --size 1b --length 16384 --tokens 16384 --keep-activations
