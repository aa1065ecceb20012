"""What a tree server cannot give is refused by name; what upstream refuses for a chain only is taken."""

from types import SimpleNamespace

import pytest
from sglang_ddtree.refusals import validate_request

ASKED_BY_EVERYONE = {"return_hidden_states": False, "return_sampling_mask": False}


def answer(**asked):
    request = SimpleNamespace(**{**ASKED_BY_EVERYONE, **asked})
    return validate_request(lambda *_: "upstream refuses", request, enable_overlap=True)


@pytest.mark.parametrize("name", ASKED_BY_EVERYONE)
def test_the_request_is_named_with_the_way_out(name):
    assert name in answer(**{name: True}) and "serve without speculation" in answer(**{name: True})


def test_logprobs_and_grammars_are_taken():
    assert answer(return_logprob=True, sampling_params=SimpleNamespace(regex="a")) is None
