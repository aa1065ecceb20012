"""What the matrix refuses before it starts a server, and which arms it brings up together."""

import json

import pytest

from bench import matrix, options
from bench.arms import Launch
from bench.cells import turn
from bench.errors import BenchError
from bench.fleet import Fleet
from bench.store import Cell, Run


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--samples", "0"], "--samples 0 is too low: use at least 1"),
        (["--side-by-side", "0"], "--side-by-side 0"),
        (["--max-new-tokens", "3"], "--max-new-tokens 3"),
        (["--device", "cpu", "--arms", "ar:eager"], "CUDA graphs"),
        (["--arms", "chain:block=1"], "block size 1"),
        (["--url", "tree:8:4=http://127.0.0.1:1"], "names no arm"),
        (["--url", "ar"], "names no arm"),
        (["--url", "ar=http://127.0.0.1:1", "--no-quality", "--serving-requests", "0"], "127.0.0.1:1"),
        (["--drafter", "/nowhere"], "/nowhere"),
    ],
)
def test_refused_in_one_line_before_a_server_is_started(folders, tmp_path, capsys, monkeypatch, flags, said):
    monkeypatch.setattr(options.Prompts, "load", lambda *_: None)
    monkeypatch.setattr(matrix, "check_prompts", lambda *_: None)
    assert matrix.main([*folders, "--arms", "ar", "--run", str(tmp_path / "run"), *flags]) == 1
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
    assert not list(tmp_path.glob("run/logs/*.log"))


@pytest.mark.parametrize(("flag", "text"), [("--arms", "tree:x:4"), ("--contexts", "0"), ("--concurrency", "two")])
def test_list_that_cannot_be_read_is_refused_with_its_flag(folders, tmp_path, capsys, flag, text):
    arguments = {"--arms": "ar", "--run": str(tmp_path)} | {flag: text}
    with pytest.raises(SystemExit):
        matrix.main([*folders, *(word for pair in arguments.items() for word in pair)])
    assert flag in capsys.readouterr().err


def fleet(tmp_path, side_by_side, urls=()):
    launches = {name: Launch([]) for name in ("ar", "chain", "tree:8:4", "tree:16:4") if name not in urls}
    return Fleet(launches, dict.fromkeys(urls, "http://127.0.0.1:1"), tmp_path, side_by_side)


def test_arms_come_up_in_groups_of_what_fits(tmp_path):
    arms = ["ar", "chain", "tree:8:4", "tree:16:4"]
    assert fleet(tmp_path, 16).groups(arms) == [arms]
    assert fleet(tmp_path, 3).groups(arms) == [arms[:3], arms[3:]]
    assert fleet(tmp_path, 1).groups(arms) == [[arm] for arm in arms]


def test_servers_are_spread_over_the_cards_in_turns():
    launches = {name: Launch([], {"A": "b"}) for name in ("ar", "chain", "tree:8:4")}
    placed = options.spread(launches, gpus=2)
    assert [launch.environment["CUDA_VISIBLE_DEVICES"] for launch in placed.values()] == ["0", "1", "0"]
    assert all(launch.environment["A"] == "b" for launch in placed.values())
    assert options.spread(launches, gpus=1) == launches


def test_quality_is_asked_once_per_arm_and_requests_at_once(tmp_path):
    run = Run.begin(tmp_path, {})
    run.write(Cell(60, 8, "ar"), {"quality": {"known": 1}})
    run.write(Cell(60, 1, "ar"), {"quality": {"known": 2}})
    run.write(Cell(60, 8, "chain"), {"quality": None})
    found = matrix.Matrix(run, fleet(tmp_path, 1), [], None)
    assert found.judged(8) == {"ar": {"known": 1}}


def test_points_that_do_not_fit_into_the_pool_are_left_out_by_name(folders, tmp_path, capsys):
    axes = ["--contexts", "60,1024", "--concurrency", "1,8", "--max-new-tokens", "64", "--pool-tokens", "9000"]
    args = matrix.parse_args([*folders, "--arms", "ar", "--run", str(tmp_path), "--device", "cpu", *axes])
    assert matrix.fitting(args) == [(60, 1), (60, 8), (1024, 1)]
    assert "context 1024, 8 at once left out: needs --pool-tokens 12800" in capsys.readouterr().err


def test_each_arm_goes_first_equally_often():
    arms = ["ar", "chain", "tree:8:4"]
    turns = [turn(arms, repetition) for repetition in range(6)]
    assert all(sorted(order) == sorted(arms) for order in turns)
    assert {arm: sum(order[0] == arm for order in turns) for arm in arms} == dict.fromkeys(arms, 2)


def test_running_servers_take_no_place(tmp_path):
    arms = ["ar", "chain", "tree:8:4"]
    assert fleet(tmp_path, 1, urls=["tree:8:4"]).groups(arms) == [["tree:8:4", "ar"], ["chain"]]
    assert fleet(tmp_path, 1, urls=arms).groups(arms) == [arms]


def test_settings_of_a_run_name_the_model_and_not_its_path(folders, tmp_path):
    args = matrix.parse_args([*folders, "--arms", "ar", "--run", str(tmp_path), "--device", "cpu"])
    found = options.settings(args, "matrix")
    assert found["block_size"] == 8 and found["samples"] == 10
    assert str(tmp_path) not in json.dumps(found)
    before = found["target"]
    (tmp_path / "target" / "model.safetensors").write_bytes(b"\x08" + b"\0" * 7 + b'{"a":0} ')
    assert options.settings(args, "matrix")["target"] != before


def test_error_of_a_server_is_an_error_of_the_bench():
    with pytest.raises(BenchError, match="does not answer"):
        matrix.Fleet({}, {"ar": "http://127.0.0.1:1"}, None, 1).up(["ar"])["ar"].info()
