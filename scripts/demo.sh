#!/usr/bin/env bash
# One command from a fresh clone to a served, verified model: engine, wheels, image, server, smoke tests, figures.
# Running it again is quick and changes nothing.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
export CACHE_DIR=${CACHE_DIR:-$root/.cache}
export PORT=${PORT:-30000}
export SGLANG_VERSION=${SGLANG_VERSION:-0.5.16}
export MODEL_PAIR=${MODEL_PAIR:-smollm2-135m}
export DDTREE_ALGORITHM=${DDTREE_ALGORITHM:-tree}
# The demo's questions come without a key.
export API_KEY=
export WHEEL_DIR=$CACHE_DIR/wheels
url=http://127.0.0.1:$PORT
tools=$CACHE_DIR/tools
began=$SECONDS

step() { printf '\n== %s (%ds)\n' "$1" "$((SECONDS - began))"; }

die() {
    printf 'demo: %s\n' "$*" >&2
    exit 1
}

port_is_ours() { docker compose port sglang 30000 2>/dev/null | grep -q ":$PORT$"; }

check_port() {
    if python3 -c "import socket; socket.create_connection(('127.0.0.1', $PORT), 1)" 2>/dev/null && ! port_is_ours; then
        die "port $PORT is taken by another program: stop it, or choose another with PORT=30001 make demo"
    fi
}

check_tools() {
    command -v python3 >/dev/null || die "python3 is missing: install it first"
    if [ ! -x "$tools/bin/pip" ] && ! python3 -m venv "$tools" >/dev/null 2>&1; then
        if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
            die "python3 cannot make a venv: install the package python3-venv"
        fi
        apt-get update -qq && apt-get install -y -qq python3-venv >/dev/null
        python3 -m venv --clear "$tools"
    fi
    "$tools/bin/pip" install --quiet --disable-pip-version-check -r smoke_tests/requirements.txt
}

build() {
    "$tools/bin/python" -m models wheel "$MODEL_PAIR"
    BASE_IMAGE=$(PYTHON=$tools/bin/python scripts/build-image.sh "$SGLANG_VERSION")
    export BASE_IMAGE
    [ -f .env ] || printf '%s=%s\n' BASE_IMAGE "$BASE_IMAGE" SGLANG_VERSION "$SGLANG_VERSION" WHEEL_DIR "$WHEEL_DIR" >.env
    docker image inspect --format '{{.Size}}' "sglang-ddtree:cpu-$SGLANG_VERSION" |
        awk '{printf "image sglang-ddtree:cpu, %.2f GB\n", $1 / 1e9}'
}

start() {
    docker compose up --detach --no-build --quiet-pull >/dev/null 2>&1 &
    local up=$! waited=0 state
    while true; do
        state=$(docker compose ps --format '{{.Health}}' sglang 2>/dev/null || true)
        [ "$state" = healthy ] && break
        if ! kill -0 "$up" 2>/dev/null && [ -z "$(docker compose ps --quiet --status running sglang 2>/dev/null)" ]; then
            docker compose logs --no-log-prefix --tail 15 >&2
            die "the server did not start: its last lines are above"
        fi
        [ "$waited" -lt 300 ] || die "the server is not ready after 300 s: see docker compose logs sglang"
        [ $((waited % 10)) -ne 5 ] || printf 'waiting for the server, %d s\n' "$waited"
        sleep 1
        waited=$((waited + 1))
    done
    wait "$up"
    printf 'ready after %d s\n' "$waited"
}

# Before anything is installed or started; without an engine the port cannot be ours.
check_port
step "Docker engine and Compose"
scripts/docker-engine.sh
step "tools"
check_tools
step "image"
build
step "server"
start
step "smoke tests"
mkdir -p reports
"$tools/bin/python" -m pytest smoke_tests --base-url "$url" --expect-algorithm "$DDTREE_ALGORITHM" \
    --json-report reports/smoke.json --html-report reports/smoke.html
step "figures"
"$tools/bin/python" scripts/compare.py --base-url "$url" --image "sglang-ddtree:cpu-$SGLANG_VERSION" \
    --record "$CACHE_DIR/demo.json"
printf '\nThe server: %s/v1 (OpenAI-compatible). Stop it with: make down\nDone in %d s.\n' "$url" "$((SECONDS - began))"
