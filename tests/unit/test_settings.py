"""Settings: derived numbers, and one clear error for each bad value."""

import pytest
from sglang_ddtree import settings


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    monkeypatch.delenv(settings.ENV_BUDGET, raising=False)
    monkeypatch.delenv(settings.ENV_TOP_K, raising=False)


def read(monkeypatch, budget=None, top_k=None, block=None, width=None, drafter=8, window=None):
    for name, value in ((settings.ENV_BUDGET, budget), (settings.ENV_TOP_K, top_k)):
        if value is not None:
            monkeypatch.setenv(name, str(value))
    return settings.read(block, width, drafter, window)


def test_defaults_take_the_drafters_block(monkeypatch):
    found = read(monkeypatch)
    assert (found.budget, found.top_k, found.block_size) == (8, 4, 8)
    assert (found.width, found.depth) == (9, 7)


def test_capacity_is_the_number_of_nodes_of_the_full_tree(monkeypatch):
    assert read(monkeypatch, budget=2, top_k=2, block=3).capacity == 2 + 4
    assert read(monkeypatch, budget=7, top_k=1).capacity == 7


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"budget": 0}, "SGLANG_DDTREE_BUDGET=0"),
        ({"budget": "many"}, "SGLANG_DDTREE_BUDGET='many'"),
        ({"top_k": 0}, "SGLANG_DDTREE_TOPK=0"),
        ({"budget": 8, "top_k": 1}, "gives 7 nodes"),
        ({"budget": 128}, "the kernels take 127"),
        ({"block": 1}, "--speculative-dflash-block-size=1"),
        ({"block": 129}, "use at most 128"),
        ({"window": 7}, "--speculative-draft-window-size=7 is shorter than one block: use at least 8"),
        ({"drafter": None}, "names no block_size"),
        ({"budget": 8, "width": 8}, "--speculative-num-draft-tokens=8"),
    ],
)
def test_a_bad_value_is_named_with_the_fix(monkeypatch, values, words):
    with pytest.raises(settings.SettingsError, match=words.replace("(", r"\(")) as error:
        read(monkeypatch, **values)
    assert "\n" not in str(error.value)


def test_the_width_may_be_repeated(monkeypatch):
    assert read(monkeypatch, budget=16, width=17).width == 17


def test_a_window_of_one_block_is_enough(monkeypatch):
    assert read(monkeypatch, window=8).draft_window == 8


@pytest.mark.parametrize(("block", "drafter"), [(None, 8), (4, 8), (16, None)])
def test_a_block_within_the_training_is_taken_without_a_word(monkeypatch, block, drafter):
    assert read(monkeypatch, block=block, drafter=drafter).warning is None


def test_a_block_beyond_the_training_is_taken_with_what_to_expect(monkeypatch):
    found = read(monkeypatch, block=16)
    assert found.block_size == 16
    for words in ("--speculative-dflash-block-size=16", "trained on", "8", "answers stay exact", "accept length"):
        assert words in found.warning
