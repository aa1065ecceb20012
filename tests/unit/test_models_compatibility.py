"""A drafter that does not fit its target is refused, and the reason is named."""

import copy

import pytest

from models.compatibility import drafter_block_size, find_doubts, find_problems

TARGET = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 576,
    "vocab_size": 49152,
    "num_hidden_layers": 30,
}
DRAFTER = {
    "architectures": ["DFlashDraftModel"],
    "hidden_size": 576,
    "vocab_size": 49152,
    "num_hidden_layers": 3,
    "num_target_layers": 30,
    "block_size": 8,
    "dflash_config": {"mask_token_id": 16, "target_layer_ids": [1, 8, 15, 22, 28]},
}


def with_changes(config, **changes):
    """A copy of `config`; `a__b` changes the key b inside a, and None removes the key."""
    config = copy.deepcopy(config)
    for key, value in changes.items():
        *outer, last = key.split("__")
        place = config
        for name in outer:
            place = place[name]
        if value is None:
            del place[last]
        else:
            place[last] = value
    return config


def test_a_fitting_drafter_has_no_problems():
    assert find_problems(TARGET, DRAFTER) == []
    assert find_problems(TARGET, DRAFTER, block_size=8) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"architectures": ["LlamaForCausalLMEagle3"]}, ["LlamaForCausalLMEagle3", "DFlashDraftModel"]),
        ({"architectures": None}, ["not named", "DFlashDraftModel"]),
        ({"hidden_size": 1024}, ["hidden_size", "1024", "576"]),
        ({"hidden_size": None}, ["hidden_size", "None", "576"]),
        ({"vocab_size": 151936}, ["vocab_size", "151936", "49152"]),
        ({"num_target_layers": 36}, ["num_target_layers", "36", "30"]),
        ({"num_target_layers": None}, ["num_target_layers"]),
        ({"dflash_config__target_layer_ids": [1, 30]}, ["target_layer_ids", "30", "0 to 29"]),
        ({"dflash_config__target_layer_ids": [-1, 8]}, ["target_layer_ids", "-1", "0 to 29"]),
        ({"dflash_config__target_layer_ids": [8, 1]}, ["target_layer_ids", "rise"]),
        ({"dflash_config__target_layer_ids": [8, 8]}, ["target_layer_ids", "rise"]),
        ({"dflash_config__target_layer_ids": []}, ["target_layer_ids", "[]"]),
        ({"dflash_config__target_layer_ids": "1,8"}, ["target_layer_ids", "1,8"]),
        ({"dflash_config__mask_token_id": 49152}, ["mask_token_id", "49152", "0 to 49151"]),
        ({"dflash_config__mask_token_id": -1}, ["mask_token_id", "-1"]),
        ({"dflash_config__mask_token_id": True}, ["mask_token_id", "True"]),
        ({"block_size": 1}, ["block_size", "1"]),
        ({"block_size": "8"}, ["block_size", "'8'"]),
    ],
)
def test_each_misfit_is_the_one_problem_named(changes, words):
    (problem,) = find_problems(TARGET, with_changes(DRAFTER, **changes))
    for word in words:
        assert word in problem


def test_every_misfit_of_a_drafter_for_another_target_is_told():
    other = with_changes(TARGET, hidden_size=2048, vocab_size=151936, num_hidden_layers=28)
    problems = " ".join(find_problems(other, DRAFTER))
    for word in ("hidden_size", "vocab_size", "num_target_layers", "target_layer_ids"):
        assert word in problems


def test_a_block_size_beyond_the_training_fits_with_a_doubt():
    assert find_problems(TARGET, DRAFTER, block_size=16) == []
    (doubt,) = find_doubts(DRAFTER, 16)
    assert "16" in doubt and "8" in doubt and "accept length" in doubt


@pytest.mark.parametrize("block_size", [None, 4, 8])
def test_a_block_size_within_the_training_leaves_no_doubt(block_size):
    assert find_problems(TARGET, DRAFTER, block_size) == find_doubts(DRAFTER, block_size) == []


def test_swapped_folders_are_recognised():
    (problem,) = find_problems(DRAFTER, TARGET)
    assert "swapped" in problem


@pytest.mark.parametrize("name", ["hidden_size", "vocab_size", "num_hidden_layers"])
def test_a_target_config_without_a_needed_field_is_named(name):
    (problem,) = find_problems(with_changes(TARGET, **{name: None}), DRAFTER)
    assert "target" in problem and name in problem


def test_a_multimodal_targets_text_config_counts():
    multimodal = {"architectures": ["SomeVisionModel"], "hidden_size": 1, "text_config": TARGET}
    assert find_problems(multimodal, DRAFTER) == []


def test_fields_inside_dflash_config_win_over_those_beside_it():
    nested = with_changes(DRAFTER, dflash_config__block_size=4)
    assert drafter_block_size(nested) == 4
    assert find_problems(TARGET, nested, block_size=4) == []


def test_without_a_mask_token_id_the_tokenizer_decides():
    assert find_problems(TARGET, with_changes(DRAFTER, dflash_config__mask_token_id=None)) == []
