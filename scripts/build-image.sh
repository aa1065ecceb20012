#!/usr/bin/env bash
# Build the CPU image of one SGLang version; everything that builds it goes through here, so that the same tree
# always gives the same image.
#
#   scripts/build-image.sh 0.5.16 [TAG]      prints the base image that was used
#
# Needs a Docker engine and, in PYTHON (default python3), pip.
set -euo pipefail

version=${1:?usage: build-image.sh SGLANG_VERSION [TAG]}
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
tag=${2:-sglang-ddtree:cpu-$version}
python=${PYTHON:-python3}

"$python" scripts/wheels.py --sglang "$version" --stage docker/wheels >&2
base=$(scripts/base-image.sh | tail -n 1)
series=$(PYTHONPATH=patches "$python" -c 'import json, sys
from sglang_ddtree import selfcheck
print(selfcheck.series_hash(json.load(open(sys.argv[1]))))' "patches/sglang_ddtree/manifests/$version.json")
# The builder that every engine has; what it says is shown only when it fails.
if ! said=$(DOCKER_BUILDKIT=0 docker build --file docker/Dockerfile.cpu --build-arg "BASE_IMAGE=$base" \
    --build-arg "SGLANG_VERSION=$version" --build-arg "PATCH_SERIES=$series" --tag "$tag" . 2>&1); then
    printf '%s\n' "$said" | tail -n 20 >&2
    echo "build-image: the image could not be built: see the lines above" >&2
    exit 1
fi
echo "$base"
