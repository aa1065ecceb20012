"""The real server on every host, and a version of it with the field's worst bug that the canary returns."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.testbed.conftest import environment
from tests.testbed.hosts import ROOT, cache, run

pytestmark = pytest.mark.slow
VERSION = "0.5.16"
TAG = f"sglang-ddtree:cpu-{VERSION}"
# SGLang imports for a quarter of a minute, three times that on two cores with three servers.
START_S = 300


def saved(tag: str, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    run("docker", "save", "--output", path, tag)
    return path


@pytest.fixture(scope="module")
def real() -> dict[str, Path]:
    """Archives: the image of this checkout, and the same with the verify pass at the drafter's width, unchecked."""
    folder = cache() / "testbed" / "versions"
    build = os.environ | {"PYTHON": str(cache() / "tools" / "bin" / "python"), "DOCKER_BUILDKIT": "0"}
    run(ROOT / "scripts" / "build-image.sh", VERSION, TAG, env=build)
    context = folder / "context-real"
    shutil.rmtree(context, ignore_errors=True)
    shutil.copytree(ROOT / "tests" / "testbed" / "real", context)
    shutil.copytree(ROOT / "tests" / "probe_plugin", context / "probe_plugin")
    broken = "ddtree-testbed-real:width-bug"
    arguments = [f"--build-arg=BASE_IMAGE={TAG}", "--build-arg=PROBE=width_bug:unchecked"]
    run("docker", "build", "--quiet", f"--tag={broken}", *arguments, context, env=build)
    return {"good": saved(TAG, folder / "real.tar"), "width bug": saved(broken, folder / "real-width-bug.tar")}


def test_the_real_server_serves_on_every_host_and_its_worst_bug_on_none(fleet, real):
    done = fleet.deploy(real["good"], instance_start_s=START_S)
    assert done.returncode == 0, done.stdout[-3000:]
    for name in fleet.names:
        fleet.ask(name)
        assert fleet.record(name)["smoke"]["verdict"] == "pass"

    canary, *others = fleet.names
    good = fleet.release(canary)
    untouched = {name: fleet.started(name) for name in others}
    with fleet.clients(*others):
        done = fleet.deploy(real["width bug"], instance_start_s=START_S)
    assert done.returncode != 0
    assert "fail         recorded_text" in done.stdout, done.stdout[-3000:]
    assert f"release {good} serves again" in done.stdout
    fleet.ask(canary)
    assert {name: fleet.started(name) for name in others} == untouched


def test_the_matrix_rolls_out_what_it_measures(fleet, real, tmp_path):
    """Each arm goes through the whole roll-out, gate and all, and the inventory's settings come back at the end."""
    host = fleet.names[0]
    fleet.testbed.write_inventory(sglang_image_archive=str(real["good"]), instance_start_s=START_S)
    done = fleet.deploy(real["good"], "--limit", host, instance_start_s=START_S)
    assert done.returncode == 0, done.stdout[-3000:]
    before = fleet.record(host)["deployment"]["settings"]

    pair = cache() / "models" / "smollm2-135m"
    command = [cache() / "engine-0.5.16" / "bin" / "python", "-m", "bench.matrix", "--device", "cpu"]
    command += ["--target", pair / "target", "--drafter", pair / "drafter", "--arms", "ar,tree:7:4"]
    command += ["--deploy", f"{host}:sglang-ddtree", "--inventory", fleet.testbed.inventory, "--run", tmp_path / "run"]
    command += [
        "--samples",
        "2",
        "--questions",
        "2",
        "--max-new-tokens",
        "8",
        "--serving-requests",
        "0",
        "--no-quality",
    ]
    measured = environment() | {"PYTHONPATH": "docker/cpu"}
    ran = subprocess.run(command, cwd=ROOT, env=measured, capture_output=True, text=True, timeout=1800)
    assert ran.returncode == 0, ran.stderr[-3000:]

    cells = {path.name: json.loads(path.read_text()) for path in (tmp_path / "run" / "cells").iterdir()}
    plain, tree = cells["ar_context60_at1.json"], cells["tree-7-4_context60_at1.json"]
    assert plain["deployment"]["settings"] == {"algorithm": "ar"}
    assert tree["deployment"]["settings"] == {"algorithm": "tree", "budget": 7, "top_k": 4}
    assert plain["median"]["accept_length"] is None and tree["median"]["accept_length"] > 1
    # Greedy in float32: the same tokens, from two releases of one instance.
    assert plain["answers"] == tree["answers"]
    assert fleet.record(host)["deployment"]["settings"] == before
    passed = [line for line in fleet.audit(host) if " deploy sglang-ddtree " in line and "verdict=pass" in line]
    assert len(passed) >= 4, fleet.audit(host)
