#!/usr/bin/env bash
# Build the image of one SGLang version for a CPU or a generation of GPUs; everything that builds it goes through here,
# so that the same tree always gives the same image.
#
#   scripts/build-image.sh 0.5.16 [TAG]      prints the base image that was used
#
# Needs a Docker engine and, in PYTHON (default python3), pip. Environment: GENERATION, a target of docker/bake.json
# (default cpu); what that says are the build arguments.
set -euo pipefail
shopt -s inherit_errexit

version=${1:?usage: build-image.sh SGLANG_VERSION [TAG]}
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
generation=${GENERATION:-cpu}
tag=${2:-sglang-ddtree:$generation-$version}
python=${PYTHON:-python3}

"$python" scripts/wheels.py --generation "$generation" --sglang "$version" --stage docker/wheels >&2
base=$(scripts/base-image.sh | tail -n 1)
series=$(PYTHONPATH=patches "$python" -c 'import json, sys
from sglang_ddtree import selfcheck
print(selfcheck.series_hash(json.load(open(sys.argv[1]))))' "patches/sglang_ddtree/manifests/$version.json")
# One line for each build argument that the Dockerfile knows.
mapfile -t build < <("$python" -c 'import json, re, sys
known = set(re.findall(r"^ARG (\w+)", open("docker/Dockerfile").read(), re.M))
for item in json.load(open("docker/bake.json"))["target"][sys.argv[1]]["args"].items():
    print("--build-arg={}={}".format(*item)) if item[0] in known else None' "$generation")
# The last one that changed what goes in: another would make another image of the same content, and restart a fleet. An
# archive of the checkout has no history.
revision=$(git log -1 --format=%H -- docker models patches versions.yaml 2>/dev/null || true)
# The builder that every engine has; what it says is shown only when it fails.
if ! said=$(DOCKER_BUILDKIT=0 docker build --file docker/Dockerfile --build-arg "BASE_IMAGE=$base" "${build[@]}" \
    --build-arg "SGLANG_VERSION=$version" --build-arg "PATCH_SERIES=$series" --build-arg "REVISION=$revision" \
    --tag "$tag" . 2>&1); then
    printf '%s\n' "$said" | tail -n 40 >&2
    echo "build-image: the image could not be built: see the lines above" >&2
    exit 1
fi
echo "$base"
