"""An instance over several hosts: what is refused, and what each node is started with."""

import importlib
import sys
from pathlib import Path

import pytest

ROLES = Path(__file__).parents[2] / "ansible" / "roles"
FIRST, SECOND = "GPU-11111111-1111-1111-1111-111111111111", "GPU-22222222-2222-2222-2222-222222222222"
BIG = {
    **{"name": "big", "port": 30000, "algorithm": "ar", "nodes": ["a", "b"], "tp": 4, "pp": 1, "gpus": [FIRST, SECOND]},
    **{"node_interface": "eth1", "node_port": 20000},
}
ADDRESSES = {"a": "10.0.0.1", "b": "10.0.0.2"}


def load(role: str, name: str):
    sys.path.insert(0, str(ROLES / role / "filter_plugins"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.pop(0)


judge = load("preflight", "node_refusals")
settings = load("instance", "node_settings")


def refusals(instance: dict, host: str = "a", twin: dict | None = None, beside: tuple = (), **groups: str) -> list[str]:
    """Reasons for `host`, with the same instance on its other node unless `twin` is one."""
    generations = {node: [groups.get(node, "sm90")] for node in ("a", "b", "c")}
    fleet = {"a": [instance], "b": [twin or instance], "c": []}
    return judge.node_refusals([instance, *beside], host, generations, fleet)


def test_a_right_instance_is_taken_on_both_nodes():
    assert refusals(BIG) == refusals(BIG, host="b") == []
    assert refusals(BIG, twin=BIG | {"gpus": ["0", "1"]}) == []
    assert refusals({"name": "one", "port": 30000, "gpus": ["0"], "tp": 1, "pp": 1, "algorithm": "tree"}) == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"nodes": ["a"]}, "nodes is a: name at least two hosts"),
        ({"nodes": ["a", "a"]}, "nodes is a, a: name at least two hosts, each once"),
        ({"nodes": ["a", "x"]}, "nodes has x, which the inventory does not have: name hosts of a, b, c"),
        ({"nodes": ["b", "c"]}, "a is not among its nodes (b, c)"),
        ({"node_interface": ""}, "node_interface is missing"),
        ({"node_port": 0}, "node_port is 0: set it to a number from 1024"),
        ({"node_port": 65530}, "node_port is 65530"),
        ({"tp": 2}, "tp 2 x pp 1 = 2 ranks on 2 hosts with 2 GPUs each: set tp and pp so that their product is 4"),
        ({"algorithm": "tree"}, "algorithm tree was not proved over several hosts: set algorithm to ar"),
        ({"port": 20003}, "its nodes use ports 20000 to 20007, and big has one of them"),
    ],
)
def test_a_wrong_instance_is_refused_in_one_sentence(change, reason):
    (found,) = refusals(BIG | change)
    assert found.startswith(f"instance big: {reason}")


def test_stages_of_a_pipeline_lie_on_whole_hosts():
    three = BIG | {"nodes": ["a", "b", "c"], "tp": 3, "pp": 2}
    fleet = dict.fromkeys("abc", [three])
    (found,) = judge.node_refusals([three], "a", dict.fromkeys("abc", ["sm90"]), fleet)
    assert "pp 2 does not divide over 3 hosts" in found


def test_nodes_that_differ_are_refused():
    assert "several generations (a in sm90, b in sm100)" in refusals(BIG, b="sm100")[0]
    assert "b and a say other things about tp: define it once" in refusals(BIG, twin=BIG | {"tp": 8})[0]
    assert "b and a say other things about" in refusals(BIG, twin={"name": "other"})[0]


def test_each_node_gets_its_rank_the_rendezvous_and_the_interface():
    assert settings.node_arguments(BIG, "a", ADDRESSES) == [
        *("--nnodes", "2", "--node-rank", "0", "--dist-init-addr", "10.0.0.1:20000")
    ]
    assert settings.node_arguments(BIG, "b", ADDRESSES)[3] == "1"
    assert settings.node_environment(BIG, "a") == {
        **{"NCCL_SOCKET_IFNAME": "eth1", "GLOO_SOCKET_IFNAME": "eth1", "HOST": "127.0.0.1", "PORT": "30000"}
    }
    assert settings.node_environment(BIG, "b")["HEALTH"] == "listening"
    assert settings.node_firewall(BIG, "b", ADDRESSES) == [
        'iifname "eth1" ip saddr { 10.0.0.1 } meta l4proto tcp accept',
        'iifname != "lo" tcp dport 20000-20007 drop',
    ]
    alone = {"name": "one", "port": 30000}
    assert settings.node_arguments(alone, "a", {}) == settings.node_firewall(alone, "a", {}) == []
    assert settings.node_environment(alone, "a") == {}
