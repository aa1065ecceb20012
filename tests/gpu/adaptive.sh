#!/usr/bin/env bash
# Measure every fixed arm on this GPU, write the table of tiers from it, and hold a server with that table against all
# of them in one run in which they take turns. Resumes; exit code 75 says that cells are left, 1 that it is too slow.
#
#   tests/gpu/adaptive.sh PAIR OUT [STOP_AFTER_SECONDS]
#
# PAIR holds target/ and drafter/ (the widened pair of bench.widen). PYTHON is an interpreter with the patched SGLang.
set -euo pipefail

pair=${1:?usage: adaptive.sh PAIR OUT [STOP_AFTER_SECONDS]} out=${2:?usage: adaptive.sh PAIR OUT [STOP_AFTER_SECONDS]}
stop=${3:-540}
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3}
arms=ar,chain,tree:4:8,tree:8:8,tree:16:8,tree:32:8
counts=1,2,4,8,16,32,64
models=(--target "$pair/target" --drafter "$pair/drafter" --max-new-tokens 64)
mkdir -p "$out"

if [ ! -f "$out/cost.json" ]; then
    "$python" -m bench.step_cost "${models[@]}" --arms "$arms" --concurrency "$counts" --repetitions 3 \
        --log-dir "$out/cost-logs" --output "$out/cost.json"
fi
"$python" -m bench.adaptive_table "$out/cost.json" --output "$out/tiers.json"
"$python" -m bench.matrix "${models[@]}" --arms "$arms,adaptive:$out/tiers.json" --contexts 60 \
    --concurrency "$counts" --samples 6 --serving-requests 0 --no-quality --run "$out/run" --stop-after "$stop"
"$python" -m bench.adaptive_check "$out/run"
