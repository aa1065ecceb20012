"""Every pair file is checked in full when it is loaded, and each error names the file and the key."""

import copy
import json

import pytest
import yaml

from models.compatibility import find_problems
from models.errors import ModelError
from models.registry import PAIRS, load_pair, pair_names

SHIPPED = yaml.safe_load((PAIRS / "smollm2-135m.yaml").read_text())


@pytest.fixture
def load(tmp_path):
    def load(content):
        path = tmp_path / "smollm2-135m.yaml"
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
        return load_pair(str(path))

    return load


def changed(key, value):
    """The shipped pair with the entry at the dotted `key` set to `value`, or removed with KeyError."""
    content = copy.deepcopy(SHIPPED)
    *outer, last = key.split("/")
    place = content
    for name in outer:
        place = place[name]
    if value is KeyError:
        del place[last]
    else:
        place[last] = value
    return content


@pytest.mark.parametrize("name", pair_names())
def test_each_shipped_pair_is_valid(name):
    pair = load_pair(name)
    assert pair.name == name
    assert pair.target.files and pair.drafter.files


def test_the_shipped_drafter_was_made_for_the_block_size_of_the_pair():
    pair = load_pair("smollm2-135m")
    config = json.loads((PAIRS / pair.drafter.source["path"] / "config.json").read_text())
    target = {"hidden_size": 576, "vocab_size": 49152, "num_hidden_layers": 30}
    assert find_problems(target, config, pair.engine["cpu"]["block_size"]) == []


def test_an_unknown_pair_is_answered_with_the_known_ones():
    with pytest.raises(ModelError, match="no model pair llama.*smollm2-135m"):
        load_pair("llama")


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("summary", KeyError, "summary is missing"),
        ("sumary", "x", "sumary is not a known key"),
        ("name", "other", "name must be 'smollm2-135m'"),
        ("claims_speed", "no idea", "claims_speed"),
        ("target/licence", KeyError, "target.licence is missing"),
        ("target/revision", 2, "target.revision"),
        ("target/bytes", -1, "target.bytes"),
        ("target/bytes", True, "target.bytes"),
        ("target/files", {}, "target.files"),
        ("target/files/config.json", "abc", "target.files.config.json must be a sha256"),
        ("target/files/..~config.json", "0" * 64, "plain path"),
        ("target/source/kind", "model_hub", "target.source.kind"),
        ("target/source/wheel", KeyError, "target.source.wheel is missing"),
        ("target/source/sha256", "0" * 63, "target.source.sha256"),
        ("drafter/source", "drafters/x", "drafter.source.kind"),
        ("drafter", None, "drafter must be a mapping"),
        ("engine", {}, "engine"),
        ("engine/cpu/top_k", KeyError, "engine.cpu.top_k is missing"),
        ("engine/cpu/budget", 0, "engine.cpu.budget"),
        ("engine/cpu/block_size", 1, "engine.cpu.block_size"),
        ("engine/cpu/dtype", "int3", "engine.cpu.dtype"),
    ],
)
def test_a_wrong_entry_is_named(load, key, value, named):
    content = changed(key, value)
    files = content["target"] and content["target"]["files"]
    if files and "..~config.json" in files:  # a slash cannot stand in the key above
        files["../config.json"] = files.pop("..~config.json")
    with pytest.raises(ModelError) as error:
        load(content)
    assert "smollm2-135m.yaml: " in str(error.value)
    assert named in str(error.value)


def test_a_budget_larger_than_the_tree_is_refused(load):
    content = changed("engine/cpu/top_k", 1)
    content["engine"]["cpu"]["budget"] = 7
    load(content)
    content["engine"]["cpu"]["budget"] = 8
    with pytest.raises(ModelError, match="engine.cpu.budget must be at most 7"):
        load(content)
