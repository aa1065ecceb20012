"""The licence of every locked package is listed, for the version that is locked."""

import csv
from pathlib import Path

import pytest

from tests.unit.loading import load_file

ROOT = Path(__file__).resolve().parents[2]
LOCKS = {path.stem: [path, ROOT / "docker/locks/torch-cpu.txt"] for path in ROOT.glob("docker/locks/cpu-*.txt")}
LOCKS["tools"] = [ROOT / "requirements-dev.lock"]


def read_lock(path: Path) -> dict[str, str]:
    wheels = load_file(ROOT / "scripts/wheels.py")
    return wheels.read_lock(path)


@pytest.mark.parametrize("name", LOCKS)
def test_every_locked_package_has_a_licence(name):
    with (ROOT / "docker/licences" / f"{name}.csv").open(newline="") as file:
        listed = {f"{row['package']}=={row['version']}": row["licence"] for row in csv.DictReader(file)}
    locked = {pin for path in LOCKS[name] for pin in read_lock(path)}
    assert listed.keys() == locked, "run scripts/licences.py"
    assert "unknown" not in listed.values(), "read the wheel's licence and name it in scripts/licences.py"
