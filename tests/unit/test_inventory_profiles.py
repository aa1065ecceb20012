"""An instance takes the settings of a tuned profile, and the check of the inventory warns of an old or foreign one."""

from pathlib import Path

import pytest
import yaml

from tests.unit.loading import load_file
from tests.unit.test_inventory_refusals import ansible_playbook, hosts, instance, play  # noqa: F401

PLUGIN = Path(__file__).parents[2] / "ansible" / "filter_plugins" / "tuned_profiles.py"

SETTINGS = {"algorithm": "tree", "budget": 15, "top_k": 8}
PROFILE = {
    "host": {"card": "no GPU", "sglang": "0.5.16", "patches": "000000000000"},
    "measured": "2025-01-01",
    "expires": "2025-04-01",
    "workloads": {"latency": {"settings": SETTINGS}, "throughput": {"settings": {"algorithm": "ar"}}},
}


@pytest.fixture
def profile(tmp_path):
    path = tmp_path / "profile.yaml"
    path.write_text(yaml.safe_dump(PROFILE))
    return str(path)


def load_filters() -> dict:
    return load_file(PLUGIN).FilterModule().filters()


def checked(play, **keys):  # noqa: F811
    return play({"cpu": hosts("box", sglang_instances=[instance(**keys)])})


def test_an_expired_and_foreign_profile_is_warned_of_and_used(play, profile):  # noqa: F811
    done = checked(play, profile=profile, workload="latency")
    assert done.returncode == 0, done.stdout
    assert "WARNING: instance one: the profile expired on 2025-04-01" in done.stdout
    assert "measured with patches 000000000000" in done.stdout


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"workload": "latency"}, "has workload and no profile"),
        ({"profile": "/nowhere.yaml", "workload": "latency"}, "/nowhere.yaml cannot be read"),
        ({"workload": "chat"}, "no workload chat: use one of latency, throughput"),
    ],
)
def test_a_profile_that_cannot_be_used_is_refused_by_name(play, profile, keys, said):  # noqa: F811
    known = {} if said.startswith("has workload") else {"profile": profile}
    done = checked(play, **(known | keys))
    assert done.returncode != 0
    assert said in done.stdout + done.stderr


def test_the_instance_has_the_last_word(profile):
    filters = load_filters()
    given = instance(profile=profile, workload="latency", budget=7)
    (found,) = filters["resolve_instances"]([given], {"pair": "some", "algorithm": "chain", "budget": 3}, {})
    assert (found["algorithm"], found["budget"], found["top_k"], found["pair"]) == ("tree", 7, 8, "some")
    assert filters["profile_record"](found) == {
        "measured": "2025-01-01",
        "expires": "2025-04-01",
        "workload": "latency",
    }


def test_an_override_replaces_every_engine_setting(profile):
    given = instance(profile=profile, workload="latency", budget=7, tiers={1: 8, 4: "ar"})
    arm = {"algorithm": "chain"}
    (found,) = load_filters()["resolve_instances"]([given], {"pair": "some"}, {given["name"]: arm})
    assert found == {"name": "one", "port": 30000, "pair": "some", "algorithm": "chain"}


def test_a_profile_of_another_card_is_warned_of(profile):
    given = instance(profile=profile, workload="latency", sglang="0.5.16")
    said = " ".join(load_filters()["profile_warnings"](given, card="NVIDIA H200"))
    assert "measured with card no GPU, here it is NVIDIA H200" in said
