"""An instance's tiers are judged before a host is touched, and reach the server as they stand."""

from pathlib import Path

import pytest

from tests.unit.loading import load_file

ROLE = Path(__file__).parents[2] / "ansible/roles/preflight/filter_plugins/tier_refusals.py"
filters = load_file(ROLE)


def reasons(tiers, **keys):
    return filters.tier_refusals({"name": "one", "algorithm": "tree", "tiers": tiers, **keys})


@pytest.mark.parametrize("tiers", [{1: 8}, {1: 32, 3: "chain", 9: "ar"}, {"1": "8", "4": "ar"}, {4: "ar", 1: 8}])
def test_tiers_that_can_be_served_are_taken(tiers):
    assert reasons(tiers) == []


@pytest.mark.parametrize(
    ("tiers", "keys", "words"),
    [
        ({1: 8}, {"algorithm": "chain"}, "tiers go with algorithm tree, not chain"),
        ({1: 8}, {"budget": 8}, "budget and tiers are both set"),
        ({2: 8}, {}, "tiers begin at 2"),
        ({1: 8, 0: 4}, {}, "1 among them"),
        ({}, {}, "1 among them"),
        ({1: 0}, {}, "tiers have 0 from 1 on"),
        ({1: 8, 4: False}, {}, "tiers have False from 4 on"),
    ],
)
def test_what_cannot_be_served_is_named(tiers, keys, words):
    (reason,) = reasons(tiers, **keys)
    assert reason.startswith("instance one: ") and words in reason
