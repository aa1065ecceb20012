"""Where a text ends and how many are written: as on the same server without speculation, within a step too."""

import pytest

from tests.engine.feature_requests import SEVERAL, STOPS


def endings(replies) -> list[tuple]:
    """Text, tokens and reason of every completion."""
    infos = ((one, one["meta_info"]) for one in replies)
    return [(one["text"], one["output_ids"], info["finish_reason"], info["completion_tokens"]) for one, info in infos]


@pytest.mark.parametrize("name", ["stops", "several"])
def test_endings_equal_those_without_speculation(features, name):
    assert endings(features[name].tree) == endings(features[name].plain)


def test_each_kind_of_stop_ended_a_text(features):
    kinds = {"stop", "stop_token_ids", "stop_regex"}
    ended = {
        kind
        for entry, one in zip(STOPS.sampling, features["stops"].tree, strict=True)
        for kind in kinds & set(entry)
        if one["meta_info"]["finish_reason"]["type"] == "stop"
    }
    assert ended == kinds


def test_every_prompt_has_its_completions(features):
    assert len(features["several"].tree) == 2 * len(SEVERAL.prompts)
