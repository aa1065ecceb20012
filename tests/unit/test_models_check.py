"""`python -m models check` refuses missing, half-copied and foreign models in one line, with exit code 1."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DRAFTER = ROOT / "models" / "drafters" / "smollm2-135m-dflash-b8"
TARGET_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 576,
    "vocab_size": 49152,
    "num_hidden_layers": 30,
}


@pytest.fixture
def target(tmp_path):
    folder = tmp_path / "target"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(TARGET_CONFIG))
    header = b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    return folder


@pytest.fixture
def drafter(tmp_path):
    return Path(shutil.copytree(DRAFTER, tmp_path / "drafter"))


def check(*arguments):
    # -S keeps installed packages away: the check must need the standard library alone.
    command = [sys.executable, "-S", "-m", "models", "check", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def assert_refused(result, *words):
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1, result.stderr
    for word in words:
        assert word in result.stderr


def test_the_embedded_drafter_fits_its_target(target, drafter):
    result = check(target, drafter, "--block-size", 8)
    assert result.returncode == 0, result.stderr
    assert "fits" in result.stdout


def test_a_block_size_beyond_the_training_is_taken_with_a_warning(target, drafter):
    result = check(target, drafter, "--block-size", 16)
    assert result.returncode == 0, result.stderr
    assert result.stderr.startswith("warning: block size 16 is more than the 8") and "accept length" in result.stderr


def test_a_block_size_that_proposes_nothing_is_refused(target, drafter):
    assert_refused(check(target, drafter, "--block-size", 1), "block size 1")


def test_a_drafter_of_another_target_is_refused(target, drafter):
    (target / "config.json").write_text(json.dumps({**TARGET_CONFIG, "num_hidden_layers": 24}))
    assert_refused(check(target, drafter), str(drafter), str(target), "num_target_layers", "28", "0 to 23")


def test_a_missing_drafter_is_refused(target, tmp_path):
    assert_refused(check(target, tmp_path / "nowhere"), "drafter", str(tmp_path / "nowhere"), "does not exist")


def test_a_missing_config_is_refused(target, drafter):
    (drafter / "config.json").unlink()
    assert_refused(check(target, drafter), "drafter", "config.json")


@pytest.mark.parametrize("content", ['{"architectures": ["DFl', "[]", ""])
def test_a_damaged_config_is_refused(target, drafter, content):
    (drafter / "config.json").write_text(content)
    assert_refused(check(target, drafter), "drafter", "config.json", "damaged")


def test_missing_weights_are_refused(target, drafter):
    (drafter / "model.safetensors").unlink()
    assert_refused(check(target, drafter), "drafter", "no weights")


@pytest.mark.parametrize("size", [0, 7, 1000, 24_000_000])
def test_half_copied_weights_are_refused(target, drafter, size):
    with (drafter / "model.safetensors").open("r+b") as file:
        file.truncate(size)
    assert_refused(check(target, drafter), str(drafter / "model.safetensors"))


def test_a_file_that_is_no_safetensors_is_refused(target, drafter):
    (drafter / "model.safetensors").write_text("<html>Not Found</html>" * 100)
    assert_refused(check(target, drafter), "model.safetensors", "not a safetensors file")


def test_a_missing_shard_is_refused(target, drafter):
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (target / "model.safetensors.index.json").write_text(json.dumps(index))
    (target / "model.safetensors").rename(target / "model-00001-of-00002.safetensors")
    assert_refused(check(target, drafter), "model-00002-of-00002.safetensors", "missing")
