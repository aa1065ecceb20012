"""The image's bill of materials names what is installed, and each locked wheel by its hash."""

import json
import re

import pytest

from scripts import wheels
from tests.image.conftest import IMAGE, ROOT, VERSION, docker

LOCKS = [ROOT / "docker" / "locks" / name for name in ("torch-cpu.txt", f"cpu-{VERSION}.txt")]


@pytest.fixture(scope="module")
def bill() -> dict:
    code, said = docker("run", "--rm", "--entrypoint", "cat", IMAGE, "/opt/kit/sbom.json")
    assert code == 0, said
    return json.loads(said)


def test_every_locked_wheel_is_there_with_its_hash(bill):
    locked = {pin.replace("_", "-").lower(): digest for path in LOCKS for pin, digest in wheels.read_lock(path).items()}
    found = {
        f"{part['name']}=={part['version'].partition('+')[0]}": part["hashes"][0]["content"]
        for part in bill["components"]
        if "hashes" in part
    }
    wanted = {re.sub(r"\+.*", "", re.sub(r"[-_.]+(?=.*==)", "-", pin)): digest for pin, digest in locked.items()}
    assert found == wanted


def test_what_has_no_lock_is_the_kits_own(bill):
    python = [part for part in bill["components"] if part["purl"].startswith("pkg:pypi/") and "hashes" not in part]
    assert {part["name"] for part in python} <= {"sglang-ddtree", "pip", "setuptools"}


def test_every_package_of_debian_is_there(bill):
    code, said = docker(
        "run", "--rm", "--entrypoint", "dpkg-query", IMAGE, "--show", "--showformat=${Package} ${Version}\\n"
    )
    assert code == 0, said
    found = [part for part in bill["components"] if part["purl"].startswith("pkg:deb/")]
    assert sorted(f"{part['name']} {part['version']}" for part in found) == sorted(said.splitlines())


def test_the_label_names_the_file(bill):
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    code, said = docker("image", "inspect", "--format", '{{index .Config.Labels "ddtree.sbom"}}', IMAGE)
    assert (code, said.strip()) == (0, "/opt/kit/sbom.json")
