"""The collective probe tells good collectives from bad ones, and its verdict sets the right options."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROLE = Path(__file__).parents[2] / "ansible" / "roles" / "collective_probe"
PROBE = ROLE / "files" / "collective_probe.py"
CLEAN = {"nvswitch": False, "iommu_translated": [], "acs_redirect": []}
PASS = {"outcome": "pass", "detail": "", "gb_per_s": 27.1}
HANG = {"outcome": "hang", "detail": "not finished after 120 s", "gb_per_s": None}
WRONG = {"outcome": "wrong", "detail": "rank 1: 3 of 1024 sums differ at 4096 bytes", "gb_per_s": None}

# Python reads this file in each rank at its start: what a broken way between two cards does to the collective.
FAULT = """
import os, time
import torch.distributed as distributed
whole = distributed.all_reduce
def all_reduce(tensor, *args, **keys):
    if distributed.get_world_size() == {ranks} and "NCCL_P2P_DISABLE" not in os.environ:
        {fault}
    return whole(tensor, *args, **keys)
distributed.all_reduce = all_reduce
"""


def load_filters():
    sys.path.insert(0, str(ROLE / "filter_plugins"))
    try:
        return importlib.import_module("collective_verdict")
    finally:
        sys.path.pop(0)


judge = load_filters()


def verdict(direct: dict, control: dict, **pci) -> dict:
    result = {"ranks": 2, "backend": "nccl", "arms": {"p2p": direct, "no_p2p": control}}
    return judge.collective_verdict(result, CLEAN | pci)


def test_working_transfers_are_left_on():
    found = verdict(PASS, PASS | {"gb_per_s": 56.0}, iommu_translated=["0000:01:00.0"], acs_redirect=["0000:00:01.0"])
    assert (found["verdict"], found["environment"], found["arguments"]) == ("p2p", {}, [])
    assert "27.1 GB/s" in found["reason"]


@pytest.mark.parametrize("direct", [HANG, WRONG])
@pytest.mark.parametrize(
    ("pci", "cause"),
    [
        ({"iommu_translated": ["0000:01:00.0"]}, "the IOMMU translates addresses; boot with iommu=pt"),
        ({"acs_redirect": ["0000:00:01.0"]}, "ACS redirect is on at 0000:00:01.0; switch ACS off"),
        ({}, "neither IOMMU nor ACS is in the way"),
    ],
)
def test_broken_transfers_switch_both_users_of_them_off(direct, pci, cause):
    found = verdict(direct, PASS, **pci)
    assert found["verdict"] == "no_p2p"
    assert found["environment"] == {"NCCL_P2P_DISABLE": "1"}
    assert found["arguments"] == ["--disable-custom-all-reduce"]
    assert direct["detail"] in found["reason"]
    assert cause in found["reason"]


def test_a_fault_of_both_arms_is_not_blamed_on_transfers():
    found = verdict(HANG, HANG, iommu_translated=["0000:01:00.0"])
    assert (found["verdict"], found["environment"]) == ("broken", {})
    assert "direct transfers are not the cause" in found["reason"]


def test_a_broken_fabric_is_not_worked_around():
    found = verdict(HANG, PASS, nvswitch=True)
    assert found["verdict"] == "broken"
    assert "its fabric is at fault" in found["reason"]


@pytest.fixture
def probe(tmp_path):
    """Runs the probe on the CPU; `fault` is what every all-reduce between so many ranks does first."""
    pytest.importorskip("torch", reason="the probe needs torch")

    def run(ranks: int, fault: str = "", between: int = 2, timeout: int = 90) -> dict:
        if fault:
            text = FAULT.format(ranks=between, fault=fault)
            (tmp_path / "sitecustomize.py").write_text(text, encoding="utf-8")
        environment = os.environ | {"PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, PROBE, "--ranks", str(ranks), "--backend", "gloo", "--timeout", str(timeout)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=4 * timeout)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["arms"]

    return run


@pytest.mark.slow
def test_good_collectives_pass_with_a_bandwidth(probe):
    arms = probe(2)
    assert {arm["outcome"] for arm in arms.values()} == {"pass"}
    assert arms["p2p"]["gb_per_s"] > 0


@pytest.mark.slow
def test_a_hang_of_two_ranks_is_ended_and_told_from_the_control_arm(probe):
    arms = probe(2, fault="time.sleep(600)", timeout=60)
    assert (arms["p2p"]["outcome"], arms["no_p2p"]["outcome"]) == ("hang", "pass")
    assert arms["p2p"]["seconds"] < 70
    found = verdict(arms["p2p"], arms["no_p2p"], iommu_translated=["0000:01:00.0"], acs_redirect=["0000:00:01.0"])
    assert "the IOMMU translates addresses and ACS redirect is on" in found["reason"]


@pytest.mark.slow
def test_wrong_sums_and_errors_are_told_apart(probe):
    assert "sums differ at 4096 bytes" in probe(2, fault="tensor[7] += 1")["p2p"]["detail"]
    assert "RuntimeError: no such card" in probe(2, fault="raise RuntimeError('no such card')")["p2p"]["detail"]
