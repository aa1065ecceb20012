#!/usr/bin/env bash
# GPU ring: the kernels, the same under compute-sanitizer, the engine matrix, then the smoke tests. PYTHON is an
# interpreter that has the patched SGLang and the plugin, PAIR a folder with target/ and drafter/. Results go to
# bench/results/.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
python=${PYTHON:-python3}
pair=${PAIR:-${CACHE_DIR:-$root/.cache}/models/smollm2-135m}
name=$(date +%F)-$(hostname -s)

if ! nvidia-smi -L >/dev/null 2>&1; then
    echo "test-gpu: skipped: this machine has no NVIDIA GPU (nvidia-smi does not answer)"
    exit 0
fi
[ -d "$pair/target" ] || {
    echo "test-gpu: no model pair in $pair: run make model, or set PAIR" >&2
    exit 1
}
# The kernels are those of the checkout, whatever plugin is installed.
kernels() { PYTHONPATH=patches${PYTHONPATH:+:$PYTHONPATH} "$python" "$@"; }

kernels -m pytest tests/gpu -q
kernels tests/gpu/bench_ops.py >"bench/results/$name-ops.json"
kernels tests/gpu/sanitize.py --output "bench/results/$name-sanitizer.json"
"$python" tests/gpu/engine_matrix.py --target "$pair/target" --drafter "$pair/drafter" \
    --output "bench/results/$name-engine-matrix.json"
"$python" tests/gpu/gate.py --target "$pair/target" --drafter "$pair/drafter" --output "bench/results/$name-gate.json"
