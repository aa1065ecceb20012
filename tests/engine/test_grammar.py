"""Constrained output beside the tree: the text of the same server without speculation, and always valid."""

import json
import re

import pytest

from tests.engine.feature_requests import CONSTRAINED, REGEX

EBNF_AS_REGEX = r"\[[a-d]{2,3}:[0-2](,[a-d]{2,3}:[0-2]){0,4}\]"


@pytest.mark.parametrize("name", ["constrained", "tagged", "constrained and penalised"])
def test_tokens_equal_those_without_speculation(features, name):
    plain, tree = features[name].tokens()
    assert tree == plain


def test_the_tree_took_part_in_every_kind(features):
    infos = [one["meta_info"] for one in features["constrained"].tree]
    for kind in ("json_schema", "regex", "ebnf"):
        chosen = [info for info, entry in zip(infos, CONSTRAINED.sampling, strict=True) if kind in entry]
        committed = sum(info["completion_tokens"] - 1 for info in chosen)
        assert committed / sum(info["spec_verify_ct"] for info in chosen) > 1.1, kind


def test_each_answer_is_valid_and_none_is_stuck(features):
    for entry, reply in zip(CONSTRAINED.sampling, features["constrained"].tree, strict=True):
        if entry.get("ignore_eos", True):
            continue
        assert reply["meta_info"]["finish_reason"]["type"] == "stop", reply["text"]
        if "json_schema" in entry:
            assert_fits_schema(json.loads(reply["text"]))
        else:
            assert re.fullmatch(REGEX if "regex" in entry else EBNF_AS_REGEX, reply["text"]), reply["text"]


def test_each_tag_that_was_begun_is_kept(features):
    texts = [one["text"] for one in features["tagged"].tree]
    inner = r'\{"k":("hi"|12)\}'
    begun = [rest for text in texts for rest in re.split("a(?=.)", text)[1:]]
    kept = [rest for rest in begun if re.match(inner + "b", rest)]
    assert len(kept) > 3
    # Only the last one of a text may be cut, by the limit of its length.
    assert len(begun) - len(kept) <= len(texts)


def assert_fits_schema(value) -> None:
    assert set(value) == {"a", "b", "c"}
    assert len(value["a"]) <= 6 and value["b"] in (0, 12, 201)
    assert len(value["c"]) <= 3 and set(value["c"]) <= {"ab", "cad"}
