"""Fetching is safe to repeat and to kill; verifying names each wrong file and its fix."""

import hashlib
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml", reason="the registry needs PyYAML")

from models.registry import load_pair  # noqa: E402  (after the skip above)
from models.sources import bytes_needed  # noqa: E402

ROOT = Path(__file__).parents[2]
CONFIGS = {
    "target": {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 8,
        "vocab_size": 32,
        "num_hidden_layers": 4,
    },
    "drafter": {
        "architectures": ["DFlashDraftModel"],
        "hidden_size": 8,
        "vocab_size": 32,
        "num_target_layers": 4,
        "block_size": 4,
        "dflash_config": {"mask_token_id": 0, "target_layer_ids": [1, 2]},
    },
}


def weights(count):
    """The bytes of a safetensors file with one float32 tensor of `count` zeros."""
    header = json.dumps({"w": {"dtype": "F32", "shape": [count], "data_offsets": [0, 4 * count]}}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(4 * count)


class Kit:
    """A registry of one tiny pair whose two models lie in folders beside it, and a folder to fetch into."""

    def __init__(self, folder, floats=16, **configs):
        self.folder = folder
        self.to = folder / "to"
        self.fetched = self.to / "tiny"
        self.content = {
            "name": "tiny",
            "summary": "A pair for tests.",
            "claims_speed": False,
            "engine": {"cpu": {"block_size": 4, "budget": 3, "top_k": 2, "dtype": "float32"}},
        }
        self.content["engine"]["cpu"].update(context_length=64, max_running_requests=1, max_total_tokens=128)
        for role, config in {**CONFIGS, **configs}.items():
            files = {"config.json": json.dumps(config).encode(), "model.safetensors": weights(floats)}
            self.source(role).mkdir()
            for name, content in files.items():
                (self.source(role) / name).write_bytes(content)
            self.content[role] = {
                "source": {"kind": "folder", "path": f"source-{role}"},
                "revision": "1",
                "licence": "Apache-2.0",
                "bytes": sum(map(len, files.values())),
                "files": {name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
            }
        self.write()

    def write(self):
        (self.folder / "tiny.yaml").write_text(yaml.safe_dump(self.content))

    def source(self, role):
        return self.folder / f"source-{role}"

    def command(self, command):
        return [sys.executable, "-m", "models", command, str(self.folder / "tiny.yaml"), "--to", str(self.to)]

    def run(self, command):
        return subprocess.run(self.command(command), cwd=ROOT, capture_output=True, text=True)

    def state(self):
        """Path -> (inode, time of change) of each fetched file."""
        return {
            str(path): (path.stat().st_ino, path.stat().st_mtime_ns)
            for path in self.fetched.rglob("*")
            if path.is_file() and not path.name.startswith(".")
        }


@pytest.fixture
def kit(tmp_path):
    return Kit(tmp_path)


def assert_refused(result, *words):
    assert result.returncode == 1
    assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1, result.stderr
    for word in words:
        assert word in result.stderr


def test_a_fetched_pair_verifies_and_a_second_fetch_changes_nothing(kit):
    first = kit.run("fetch")
    assert first.returncode == 0, first.stderr
    for lock in kit.fetched.glob(".*"):
        lock.unlink()
    before = kit.state()
    assert len(before) == 4
    second = kit.run("fetch")
    assert second.returncode == 0 and "already" in second.stdout
    assert kit.state() == before
    assert not list(kit.fetched.glob(".*"))  # not even a lock: a read-only folder must do
    assert kit.run("verify").returncode == 0


@pytest.mark.parametrize("damage", ["flip", "cut", "missing"])
def test_one_bad_file_is_named_and_repaired_alone(kit, damage):
    kit.run("fetch")
    bad = kit.fetched / "drafter" / "model.safetensors"
    right = bad.read_bytes()
    if damage == "missing":
        bad.unlink()
    else:
        bad.write_bytes(right[:-1] + b"X" if damage == "flip" else right[:40])
    before = kit.state()
    assert_refused(kit.run("verify"), str(bad), "missing" if damage == "missing" else "damaged", "models fetch")

    repaired = kit.run("fetch")
    assert repaired.returncode == 0, repaired.stderr
    assert bad.read_bytes() == right
    assert {path for path, state in kit.state().items() if before.get(path) != state} == {str(bad)}


def test_verify_names_every_bad_file(kit):
    kit.run("fetch")
    (kit.fetched / "target" / "config.json").write_text("{}")
    (kit.fetched / "drafter" / "config.json").unlink()
    result = kit.run("verify")
    assert result.returncode == 1
    lines = result.stderr.splitlines()
    assert len(lines) == 2 and all(line.startswith("error: ") and "models fetch" in line for line in lines)
    assert "target/config.json is damaged" in lines[0] and "drafter/config.json is missing" in lines[1]


def test_a_file_too_many_is_named_and_never_deleted(kit):
    kit.run("fetch")
    extra = kit.fetched / "target" / "model-2.safetensors"
    extra.write_bytes(b"x")
    for command in ("verify", "fetch"):
        assert_refused(kit.run(command), "target/model-2.safetensors", "not part of the pair", "move it away")
    assert extra.exists()


def test_a_damaged_source_is_refused_and_nothing_appears(kit):
    (kit.source("drafter") / "model.safetensors").write_bytes(b"not these")
    assert_refused(kit.run("fetch"), "drafter/model.safetensors", "restore", str(kit.source("drafter")))
    assert kit.state() == {}


def test_a_missing_source_is_refused(kit):
    (kit.source("drafter") / "config.json").unlink()
    assert_refused(kit.run("fetch"), str(kit.source("drafter") / "config.json"), "missing")
    assert kit.state() == {}


def test_a_drafter_of_another_target_is_refused(tmp_path):
    other = {**CONFIGS["drafter"], "hidden_size": 16}
    kit = Kit(tmp_path, drafter=other)
    assert_refused(kit.run("fetch"), "does not fit", "hidden_size is 16")
    assert_refused(kit.run("verify"), "does not fit", "hidden_size is 16")


def test_a_block_size_beyond_the_drafters_training_is_told(kit):
    kit.content["engine"]["cpu"]["block_size"] = 8
    kit.write()
    result = kit.run("fetch")
    assert result.returncode == 0 and "warning: tiny: block size 8 is more than the 4" in result.stdout, result.stdout


def test_too_little_disk_is_told_before_anything_is_written(kit):
    kit.content["target"]["bytes"] = 10**18
    kit.write()
    assert_refused(kit.run("fetch"), "1000000000000 MB free", "--to")
    assert kit.state() == {}


def test_repairing_a_small_file_needs_no_room_for_the_large_ones(kit):
    kit.run("fetch")
    target = load_pair(str(kit.folder / "tiny.yaml")).target
    folder = kit.fetched / "target"
    size = (folder / "config.json").stat().st_size
    assert bytes_needed(target, ["config.json"], folder, kit.folder) == {folder: size}


def test_a_folder_that_cannot_be_made_is_one_line(kit):
    kit.to.write_text("a file where the folder should be")
    assert_refused(kit.run("fetch"), str(kit.to))


def test_an_unknown_pair_is_one_line():
    command = [sys.executable, "-m", "models", "verify", "nothing"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert_refused(result, "no model pair nothing", "smollm2-135m")


def test_a_killed_fetch_leaves_nothing_that_is_believed(tmp_path):
    kit = Kit(tmp_path, floats=16_000_000)  # 128 MB of copying: time enough to be killed in between
    stage = kit.fetched / ".fetching"
    process = subprocess.Popen(kit.command("fetch"), cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        while process.poll() is None and not list(stage.glob("*/model.safetensors")):
            time.sleep(0.001)
    finally:
        process.kill()
    assert process.wait() == -signal.SIGKILL, "the fetch was over before it could be killed"
    assert stage.exists() and kit.state().keys() <= set(map(str, stage.rglob("*")))
    assert kit.run("verify").returncode == 1

    again = kit.run("fetch")
    assert again.returncode == 0, again.stderr
    assert not stage.exists()
    assert kit.run("verify").returncode == 0


def test_two_fetches_at_once_both_succeed(tmp_path):
    kit = Kit(tmp_path, floats=4_000_000)
    processes = [subprocess.Popen(kit.command("fetch"), cwd=ROOT, stdout=subprocess.DEVNULL) for _ in "ab"]
    assert [process.wait() for process in processes] == [0, 0]
    assert kit.run("verify").returncode == 0
