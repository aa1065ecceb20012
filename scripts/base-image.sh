#!/usr/bin/env bash
# Makes sure that the base image of the build exists and prints its name as the last line of stdout:
#   BASE_IMAGE=$(scripts/base-image.sh | tail -n 1)
# A registry comes first. Without one, root gets Debian through debootstrap from the machine's own mirror.
# A machine with certificate authorities of its own gets them baked in, else pip could not reach its index in a build.
# Environment: DEBIAN_SUITE (default bookworm), BASE_IMAGE (default: that of the Dockerfile, by digest), DEBIAN_MIRROR
# (default: from the apt sources).
set -euo pipefail
shopt -s inherit_errexit

suite=${DEBIAN_SUITE:-bookworm}
pinned=$(sed -n 's/^ARG BASE_IMAGE=//p' "$(dirname "${BASH_SOURCE[0]}")/../docker/Dockerfile")
default_image=debian:$suite-slim
case $pinned in "$default_image"@*) default_image=$pinned ;; esac
wanted=${BASE_IMAGE:-$default_image}
local_image=local/debian:$suite
ca_dir=/usr/local/share/ca-certificates
pull_timeout_s=120

say() { printf 'base-image: %s\n' "$*" >&2; }

die() {
    say "$*"
    exit 1
}

has_image() { docker image inspect "$1" >/dev/null 2>&1; }

# One "URI suite component" line for each of Debian's own package lists of this machine that fit the suite.
debian_sources() {
    # shellcheck disable=SC2016  # apt-get expands these names
    apt-get indextargets --format '$(ORIGIN) $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 2>/dev/null |
        awk -v suite="^$suite(-|\$)" '$1 == "Debian" && $3 ~ suite { print $2, $3, $4 }' | sort -u
}

debian_mirror() {
    # shellcheck disable=SC2016
    printf '%s\n' "${DEBIAN_MIRROR:-$(apt-get indextargets --format '$(LABEL) $(REPO_URI)' 'Created-By: Packages' \
        2>/dev/null | awk '$1 == "Debian" { print $2; exit }')}"
}

debootstrap_image() {
    local mirror root
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        die "$wanted cannot be pulled and only root on Debian can build one; set BASE_IMAGE to an image this machine has"
    fi
    # Without fresh lists apt does not tell which archive is Debian's.
    apt-get update >&2
    mirror=$(debian_mirror)
    [ -n "$mirror" ] || die "the apt sources name no Debian mirror; set DEBIAN_MIRROR to its URL"
    if ! command -v debootstrap >/dev/null; then
        DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends debootstrap debian-archive-keyring >&2
    fi
    # /tmp is often mounted nodev, which debootstrap cannot use.
    root=$(mktemp -d /var/tmp/base-image.XXXXXX)
    # shellcheck disable=SC2064  # the name is local: expand it now
    trap "rm -rf '$root'" EXIT
    say "building $local_image with debootstrap, about half a minute"
    # Without the flag a missing keyring is a warning, and packages nobody signed become the base.
    debootstrap --force-check-gpg --variant=minbase --include=ca-certificates "$suite" "$root" "$mirror" >"$root.log" 2>&1 || {
        tail -n 5 "$root.log" >&2
        die "debootstrap failed; its log is $root.log"
    }
    rm "$root.log"
    debian_sources | sed 's/^/deb /' >"$root/etc/apt/sources.list.d/machine.list"
    # debootstrap's own line repeats one of those.
    if [ -s "$root/etc/apt/sources.list.d/machine.list" ]; then : >"$root/etc/apt/sources.list"; fi
    # As in Debian's published images: no layer keeps packages or apt's caches.
    cat >"$root/etc/apt/apt.conf.d/no-caches" <<'CONF'
DPkg::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb || true"; };
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
CONF
    rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/var/log/*.log
    tar -C "$root" -c . | docker import --change 'CMD ["bash"]' - "$local_image" >/dev/null
}

plain_image() {
    if has_image "$wanted"; then
        echo "$wanted"
        return
    fi
    if [ "$wanted" = "$default_image" ] && has_image "$local_image"; then
        echo "$local_image"
        return
    fi
    if timeout "$pull_timeout_s" docker pull --quiet "$wanted" >&2; then
        echo "$wanted"
        return
    fi
    [ "$wanted" = "$default_image" ] || die "BASE_IMAGE=$wanted is not on this machine and cannot be pulled"
    debootstrap_image
    echo "$local_image"
}

with_own_authorities() { # base image
    local name context
    # The tag is a digest of all that goes in, so that a new certificate or base makes a new image.
    name=local/base-with-ca:$( (docker image inspect --format '{{.Id}}' "$1" && cat "$ca_dir"/*.crt) |
        sha256sum | cut -c 1-12)
    if ! has_image "$name"; then
        say "adding this machine's certificate authorities to $1"
        context=$(mktemp -d)
        # shellcheck disable=SC2064
        trap "rm -rf '$context'" EXIT
        mkdir "$context/certificates"
        cp "$ca_dir"/*.crt "$context/certificates/"
        cat >"$context/Dockerfile" <<DOCKERFILE
FROM $1
COPY certificates $ca_dir
RUN command -v update-ca-certificates >/dev/null || \
    { apt-get update && apt-get install -y --no-install-recommends ca-certificates && rm -rf /var/lib/apt/lists/*; }
RUN update-ca-certificates
ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt
DOCKERFILE
        docker build --quiet --tag "$name" "$context" >&2
    fi
    echo "$name"
}

docker info >/dev/null 2>&1 || die "no Docker engine answers; run scripts/docker-engine.sh first"
base=$(plain_image)
if compgen -G "$ca_dir/*.crt" >/dev/null; then
    base=$(with_own_authorities "$base")
fi
echo "$base"
