"""`docker compose config` of every profile for GPUs: the right GPUs, by UUID, and nothing of another generation."""

import json
import os
import subprocess

import pytest

from tests.image.conftest import ROOT

GENERATIONS = json.loads((ROOT / "docker" / "bake.json").read_text())["group"]["gpu"]["targets"]
GPUS = "GPU-11111111-2222-3333-4444-555555555555"


def config(profile: str, **settings: str) -> subprocess.CompletedProcess:
    command = ["docker", "compose", "--file", "docker/compose.gpu.yaml", "--profile", profile, "config"]
    environment = {name: value for name, value in os.environ.items() if name not in ("GPUS", "COMPOSE_PROFILES")}
    return subprocess.run(
        [*command, "--format", "json"], cwd=ROOT, capture_output=True, text=True, env=environment | settings
    )


@pytest.mark.parametrize("generation", GENERATIONS)
def test_the_profile_gives_the_named_gpus_to_the_image_of_the_generation(generation):
    done = config(generation, GPUS=GPUS, SHM_SIZE="8gb", MEMLOCK="65536", SGLANG_VERSION="0.5.16")
    assert done.returncode == 0, done.stderr
    services = json.loads(done.stdout)["services"]
    assert set(services) == {generation, f"model-{generation}"}
    server = services[generation]
    assert {service["image"] for service in services.values()} == {f"sglang-ddtree:{generation}-0.5.16"}
    (device,) = server["deploy"]["resources"]["reservations"]["devices"]
    assert device["device_ids"] == [GPUS] and "count" not in device
    assert set(device["capabilities"]) == {"gpu", "compute", "utility"}
    assert server["shm_size"] == str(8 << 30) and server["ulimits"]["memlock"] == 65536
    assert server["read_only"] and server["cap_drop"] == ["ALL"] and "privileged" not in server
    assert "build" not in server and server["ports"][0]["host_ip"] == "127.0.0.1"


def test_no_gpu_is_named():
    done = config("sm90")
    assert done.returncode != 0 and "set GPUS to the UUIDs that nvidia-smi -L shows" in done.stderr
