#!/usr/bin/env bash
# Image ring: the demo in a project of its own, the tests of the image around it, and down again.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
export CACHE_DIR=${CACHE_DIR:-$root/.cache}
export COMPOSE_PROJECT_NAME=ddtree-test
export PORT=${TEST_PORT:-30055}

trap 'docker compose down --volumes >/dev/null 2>&1 || true' EXIT
scripts/tools.sh
scripts/demo.sh
"$CACHE_DIR/tools/bin/python" -m pytest tests/image -q
