#!/usr/bin/env bash
# Print the folder with promtool, amtool and Prometheus: the machine's own, or the distribution's packages unpacked into
# the cache, as nothing has to be started here. Environment: CACHE_DIR (kit cache, default .cache in the checkout).
set -euo pipefail

if command -v promtool >/dev/null && command -v prometheus >/dev/null; then
    dirname "$(command -v promtool)"
    exit 0
fi
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
folder=${CACHE_DIR:-$root/.cache}/prometheus
if [ ! -x "$folder/usr/bin/promtool" ]; then
    command -v apt-get >/dev/null || {
        echo "prometheus: no apt-get here: put promtool and prometheus on the PATH" >&2
        exit 1
    }
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    cd "$scratch"
    apt-get download prometheus prometheus-alertmanager >&2 || {
        apt-get update >&2
        apt-get download prometheus prometheus-alertmanager >&2
    }
    for package in *.deb; do dpkg -x "$package" unpacked; done
    mkdir -p "$(dirname "$folder")"
    rm -rf "$folder"
    mv unpacked "$folder"
fi
echo "$folder/usr/bin"
