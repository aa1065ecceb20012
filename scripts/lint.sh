#!/usr/bin/env bash
# Runs every linter over the checkout: one line each, followed by what it found. Exit code 1 when any of them fails.
# Environment: CACHE_DIR (kit cache, default .cache in the checkout); the linters come from its folder tools.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
tools=${CACHE_DIR:-$root/.cache}/tools/bin
PATH=$tools:$PATH
# ansible-lint refuses to start in the locale C.
export NO_COLOR=1 LC_ALL=C.UTF-8
failed=0

lint() { # name, command
    local name=$1 output
    shift
    if ! command -v "$1" >/dev/null; then
        printf '%-13s FAILED: %s is not in %s, run make tools\n' "$name" "$1" "$tools"
        failed=1
    elif output=$("$@" 2>&1); then
        printf '%-13s ok\n' "$name"
    else
        printf '%-13s FAILED\n%s\n' "$name" "$output"
        failed=1
    fi
}

shopt -s nullglob extglob
# By their first line, as what units and test hosts call has no ending.
mapfile -t scripts < <(grep -rIlE -m1 '^#!(/usr)?/bin/(env )?(ba)?sh$' --exclude-dir='.[!.]*' . .ci/run)
dockerfiles=(docker/Dockerfile)

lint ruff ruff check --quiet --output-format=concise .
lint ruff-format ruff format --check --output-format=concise .
lint yamllint yamllint --strict .
lint ansible-lint ansible-lint --offline -q
lint shellcheck shellcheck --external-sources "${scripts[@]}"
lint hadolint hadolint "${dockerfiles[@]}"
exit "$failed"
