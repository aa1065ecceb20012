"""What `docker compose --profile monitoring` adds: off unless asked for, pinned by digest, on loopback alone."""

import re
from pathlib import Path

import pytest
import yaml

FOLDER = Path(__file__).parents[2] / "docker"
SERVICES = yaml.safe_load((FOLDER / "monitoring.yaml").read_text(encoding="utf-8"))["services"]


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_confined_and_pinned(name):
    service = SERVICES[name]
    assert service["profiles"] == ["monitoring"]
    assert re.fullmatch(r"\$\{\w+:-[\w/.-]+:[\w.-]+@sha256:[0-9a-f]{64}\}", service["image"])
    assert service["read_only"] and service["cap_drop"] == ["ALL"]
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


def test_what_is_mounted_is_there():
    for name, service in SERVICES.items():
        for mount in service["volumes"]:
            source = mount.split(":")[0]
            assert not source.startswith(".") or (FOLDER / source).exists(), f"{name}: {source}"


def test_the_data_source_is_the_one_that_the_dashboards_name():
    source = yaml.safe_load((FOLDER / "monitoring" / "datasource.yaml").read_text(encoding="utf-8"))
    assert [row["uid"] for row in source["datasources"]] == ["sglang-ddtree"]
