"""The images' data says the same everywhere: build arguments, inventory, matrix, locks, Compose, Dockerfile."""

import json
import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
BAKE = json.loads((ROOT / "docker" / "bake.json").read_text())
TARGETS = {name: target for name, target in BAKE["target"].items() if name != "common"}
GPUS = {name: target["args"] for name, target in TARGETS.items() if name != "cpu"}
DOCKERFILE = (ROOT / "docker" / "Dockerfile").read_text()
MATRIX = yaml.safe_load((ROOT / "ansible" / "compatibility.yml").read_text(encoding="utf-8"))
# Read by scripts/wheels.py, docker/trim.py and the self-test, not by the Dockerfile.
NOT_IN_THE_DOCKERFILE = {"LOCKS", "DROP", "STRIP"}


def pins(lock: str) -> dict[str, str]:
    return dict(re.findall(r"^([\w.-]+)==(\S+) ", (ROOT / "docker" / "locks" / f"{lock}.txt").read_text(), re.M))


def test_every_group_of_the_inventory_has_an_image_and_the_reverse():
    assert set(TARGETS) == {"cpu", *MATRIX["generations"]}
    assert set(BAKE["group"]["gpu"]["targets"]) == set(GPUS)


@pytest.mark.parametrize("generation", GPUS)
def test_the_inventory_expects_what_the_build_gives(generation):
    build = GPUS[generation]
    group = yaml.safe_load((ROOT / "ansible" / "group_vars" / f"{generation}.yml").read_text(encoding="utf-8"))
    assert build["COMPUTE_CAPABILITY"] == MATRIX["generations"][generation]["compute_capability"]
    assert group["gpu_image"] == {
        "compute_capabilities": build["COMPUTE_CAPABILITY"].split(),
        "cuda": build["CUDA_VERSION"],
        "compat_driver": build["COMPAT_DRIVER"],
    }
    assert build["DRIVER_MIN"] == MATRIX["cuda"][build["CUDA_VERSION"].split(".")[0]]["min_driver"]
    assert TARGETS[generation]["tags"] == [group["sglang_image"] + "-${SGLANG_VERSION}"]


def test_every_argument_of_a_target_is_used_and_every_target_has_all():
    known = set(re.findall(r"^ARG (\w+)", DOCKERFILE, re.M))
    shared = set(BAKE["target"]["common"]["args"])
    for target in TARGETS.values():
        assert set(target["args"]) - NOT_IN_THE_DOCKERFILE | shared | {"BASE_IMAGE"} == known


def test_the_defaults_of_the_dockerfile_are_those_of_the_cpu():
    for name, value in re.findall(r"^ARG (\w+)=(.*)", DOCKERFILE, re.M):
        assert TARGETS["cpu"]["args"].get(name, value) == value, name


def test_the_base_is_pinned_by_digest_and_in_one_place():
    (base,) = re.findall(r"^ARG BASE_IMAGE=(\S+@sha256:[0-9a-f]{64})$", DOCKERFILE, re.M)
    compose = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text(encoding="utf-8"))
    assert compose["services"]["sglang"]["build"]["args"]["BASE_IMAGE"] is None
    assert base.startswith("debian:bookworm-slim@")


@pytest.mark.parametrize("generation", GPUS)
def test_cuda_of_the_lock_is_that_of_the_label(generation):
    for lock in GPUS[generation]["LOCKS"].replace("VERSION", "0.5.16").split():
        assert pins(lock)["cuda-toolkit"].startswith(GPUS[generation]["CUDA_VERSION"] + ".")


def test_only_pypi_pins_with_hashes_are_installed():
    for path in (ROOT / "docker" / "locks").glob("*.txt"):
        lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
        assert all(re.fullmatch(r"[\w.-]+==\S+ \\|    --hash=sha256:[0-9a-f]{64}", line) for line in lines), path
