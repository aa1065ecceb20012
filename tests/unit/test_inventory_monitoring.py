"""Monitoring that cannot work is refused from the inventory alone, before a host is touched."""

import pytest

from tests.unit.test_inventory_refusals import ansible_playbook, hosts, instance, play  # noqa: F401

SERVING = {"sglang_instances": [instance()]}


def watched(**variables) -> dict:
    """A host that serves, watched by another one."""
    address = {"monitoring_listen_address": "10.0.0.2"}
    return {"cpu": hosts("here", **(SERVING | address | variables)), "monitoring": hosts("watcher")}


def test_a_host_that_only_watches_needs_no_instance(play):  # noqa: F811
    done = play(watched(monitoring_prompt_mix={"one": {"chat": 0.8, "code": 0.2}}))
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"monitoring_listen_address": "127.0.0.1"}, "watcher has to reach it: set it, for this host, to the address"),
        ({"monitoring_prompt_mix": {"one": {"poems": 1}}}, "names poems: use chat, list, code"),
    ],
)
def test_what_cannot_be_watched_is_refused(play, variables, message):  # noqa: F811
    done = play(watched(**variables))
    assert done.returncode != 0
    assert message in done.stdout + done.stderr, done.stdout


def test_a_host_in_no_group_is_still_refused(play):  # noqa: F811
    done = play({"monitoring": hosts("watcher"), "other": hosts("here", **SERVING)})
    assert done.returncode != 0
    assert "here is in no group" in done.stdout
