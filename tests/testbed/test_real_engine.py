"""The real server on every host, and a version of it with the field's worst bug that the canary returns."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

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
    environment = os.environ | {"PYTHON": str(cache() / "tools" / "bin" / "python"), "DOCKER_BUILDKIT": "0"}
    run(ROOT / "scripts" / "build-image.sh", VERSION, TAG, env=environment)
    context = folder / "context-real"
    shutil.rmtree(context, ignore_errors=True)
    shutil.copytree(ROOT / "tests" / "testbed" / "real", context)
    shutil.copytree(ROOT / "tests" / "probe_plugin", context / "probe_plugin")
    broken = "ddtree-testbed-real:width-bug"
    arguments = [f"--build-arg=BASE_IMAGE={TAG}", "--build-arg=PROBE=width_bug:unchecked"]
    run("docker", "build", "--quiet", f"--tag={broken}", *arguments, context, env=environment)
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
