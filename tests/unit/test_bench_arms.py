"""Which servers a list of arms starts, and what is refused before any is started."""

import json
import shlex
from pathlib import Path

import pytest

from bench import step_cost
from bench.arms import Setup, engine_settings, launch, parse_arms
from bench.errors import BenchError
from bench.store import Cell


def setup(device="cuda", **changes):
    values = {"target": "T", "drafter": "D", "block_size": 8, "max_concurrency": 4, "max_new_tokens": 128}
    return Setup(device=device, **values | changes)


def value(flags, name):
    return flags[flags.index(name) + 1]


def test_arms_are_parsed_in_order():
    arms = parse_arms("ar, chain,tree:16:4,tree:31:8:eager")
    assert [(a.name, a.kind, a.budget, a.top_k, a.eager) for a in arms] == [
        ("ar", "ar", None, None, False),
        ("chain", "chain", None, None, False),
        ("tree:16:4", "tree", 16, 4, False),
        ("tree:31:8:eager", "tree", 31, 8, True),
    ]
    assert [arm.speculative for arm in arms] == [False, True, True, True]


def test_options_reach_the_servers_flags():
    (tree,) = parse_arms("tree:16:4:block=4:window=2048:page=16")
    assert (tree.block_size, tree.window, tree.page_size, tree.eager) == (4, 2048, 16, False)
    flags = launch(tree, setup()).flags
    assert value(flags, "--speculative-dflash-block-size") == "4"
    assert value(flags, "--speculative-draft-window-size") == "2048"
    assert value(flags, "--page-size") == "16"
    assert value(launch(*parse_arms("ar:page=16"), setup()).flags, "--page-size") == "16"


def test_an_adaptive_arm_is_served_by_its_table():
    (arm,) = parse_arms("adaptive:out/h200.json:page=16")
    assert (arm.kind, arm.tiers, arm.page_size, arm.speculative) == ("adaptive", "out/h200.json", 16, True)
    started = launch(arm, setup())
    assert started.environment == {"SGLANG_DDTREE_TIERS": str(Path("out/h200.json").resolve())}
    assert value(started.flags, "--speculative-algorithm") == "DDTREE"
    assert "/" not in Cell(60, 8, arm.name).file


def test_chain_on_a_cpu_is_as_deep_as_its_block():
    assert launch(*parse_arms("chain:block=4"), setup("cpu")).environment["SGLANG_DDTREE_BUDGET"] == "3"


def test_pool_and_context_hold_the_longest_prompts():
    flags = launch(*parse_arms("ar"), setup(prompt_tokens=4096)).flags
    assert value(flags, "--context-length") == str(4096 + 128 + 512)
    assert value(flags, "--max-total-tokens") == str(4 * (4096 + 128 + 512))
    assert value(launch(*parse_arms("ar"), setup(pool_tokens=9000)).flags, "--max-total-tokens") == "9000"
    assert value(launch(*parse_arms("ar"), setup()).flags, "--context-length") == "4096"


@pytest.mark.parametrize("text", ["tree:16:4:depth=3", "tree:16:4:block=0", "chain:page=1:page=2", "ar:window=64"])
def test_option_that_means_nothing_is_refused(text):
    with pytest.raises(BenchError, match=text):
        parse_arms(text)


@pytest.mark.parametrize("text", ["tree", "tree:16", "tree:16:4:fast", "tree:-1:4", "chains", "", "ar,", "ar:16"])
def test_unknown_arm_is_refused_with_its_name_and_the_forms(text):
    wrong = text.split(",")[-1]
    with pytest.raises(BenchError, match="--arms") as error:
        parse_arms(text)
    assert repr(wrong) in str(error.value) and "tree:BUDGET:TOPK" in str(error.value)


@pytest.mark.parametrize(("text", "said"), [("ar,chain,ar", "ar twice"), ("tree:0:4", "budget"), ("tree:4:0", "top-k")])
def test_arm_that_cannot_be_compared_is_refused(text, said):
    with pytest.raises(BenchError, match=said):
        parse_arms(text)


def test_tree_is_configured_by_its_environment():
    started = launch(*parse_arms("tree:16:4"), setup())
    assert started.environment == {"SGLANG_DDTREE_BUDGET": "16", "SGLANG_DDTREE_TOPK": "4"}
    assert value(started.flags, "--speculative-algorithm") == "DDTREE"
    assert value(started.flags, "--speculative-draft-model-path") == "D"
    assert value(started.flags, "--cuda-graph-max-bs") == "4"


def test_eager_arm_differs_in_the_graphs_alone():
    graphs, eager = (launch(arm, setup()) for arm in parse_arms("tree:16:4,tree:16:4:eager"))
    assert graphs.environment == eager.environment
    assert "--disable-cuda-graph" not in graphs.flags
    assert shlex.join(eager.flags) == shlex.join(graphs.flags).replace("--cuda-graph-max-bs 4", "--disable-cuda-graph")


def test_chain_is_upstreams_on_a_gpu_and_a_tree_of_one_candidate_on_a_cpu():
    (chain,) = parse_arms("chain")
    upstream = launch(chain, setup())
    assert value(upstream.flags, "--speculative-algorithm") == "DFLASH"
    assert (upstream.environment, upstream.note) == ({}, None)
    own = launch(chain, setup("cpu"))
    assert value(own.flags, "--speculative-algorithm") == "DDTREE"
    assert own.environment == {"SGLANG_DDTREE_BUDGET": "7", "SGLANG_DDTREE_TOPK": "1"}
    assert "tree 7:1" in own.note


def test_ar_has_no_drafter():
    flags = launch(*parse_arms("ar"), setup()).flags
    assert not [flag for flag in flags if "speculative" in flag]


def test_extra_flags_come_last_so_that_they_win():
    assert launch(*parse_arms("tree:8:4"), setup(extra=("--page-size", "16"))).flags[-2:] == ["--page-size", "16"]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--arms", "ar", "--profile"], "--profile"),
        (["--arms", "ar", "--repetitions", "0"], "--repetitions 0"),
        (["--arms", "ar", "--max-new-tokens", "1"], "--max-new-tokens 1"),
        (["--arms", "tree:8:4:eager", "--device", "cpu"], ":eager"),
    ],
)
def test_run_that_measures_nothing_is_refused_at_once(folders, tmp_path, capsys, flags, said):
    output = tmp_path / "result.json"
    assert step_cost.main([*folders, "--output", str(output), *flags]) == 1
    assert said in capsys.readouterr().err
    assert not output.exists()


@pytest.mark.parametrize(("flag", "text"), [("--arms", "tree:x:4"), ("--concurrency", "1,0"), ("--concurrency", "two")])
def test_list_that_cannot_be_read_is_refused_with_its_flag(folders, capsys, flag, text):
    arguments = {"--arms": "ar", "--output": "result.json"} | {flag: text}
    with pytest.raises(SystemExit):
        step_cost.main([*folders, *(word for pair in arguments.items() for word in pair)])
    assert flag in capsys.readouterr().err


def test_an_adaptive_arm_is_served_by_an_instance_that_says_its_tiers(tmp_path):
    table = tmp_path / "table.json"
    table.write_text(json.dumps({"tiers": {"1": 8, "4": "ar"}, "top_k": 4, "device": "a card"}))
    (arm,) = parse_arms(f"adaptive:{table}")
    assert engine_settings(arm) == {"algorithm": "tree", "tiers": {"1": 8, "4": "ar"}, "top_k": 4}
