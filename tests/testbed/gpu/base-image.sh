#!/usr/bin/env bash
# Makes a Debian image whose Docker engine knows CDI, which bookworm's does not, and prints its name.
set -euo pipefail

image=local/debian:trixie
if ! docker image inspect "$image" >/dev/null 2>&1; then
    # shellcheck disable=SC2016  # apt-get expands the names
    mirror=$(apt-get indextargets --format '$(LABEL) $(REPO_URI)' 'Created-By: Packages' |
        awk '$1 == "Debian" { print $2; exit }')
    [ -n "$mirror" ] || { echo "base-image: the apt sources name no Debian mirror" >&2; exit 1; }
    # /tmp is often mounted nodev, which debootstrap cannot use.
    root=$(mktemp -d /var/tmp/gpu-base.XXXXXX)
    trap 'rm -rf "$root"' EXIT
    debootstrap --variant=minbase --include=ca-certificates trixie "$root" "$mirror" >&2
    tar -C "$root" -c . | docker import --change 'CMD ["bash"]' - "$image" >/dev/null
fi
echo "$image"
