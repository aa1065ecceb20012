"""The table of tiers: what a batch size is served with, and one clear error for each bad table."""

import json

import pytest
from sglang_ddtree import settings, tiers

CAPACITY = 1000


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    for name in (settings.ENV_BUDGET, settings.ENV_TOP_K, tiers.ENV_TIERS):
        monkeypatch.delenv(name, raising=False)


def written(tmp_path, document):
    path = tmp_path / "table.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return str(path)


@pytest.fixture
def engine(monkeypatch, tmp_path):
    """Settings of an engine with these tiers and a drafter of block size 8."""

    def read(found, **environment):
        monkeypatch.setenv(tiers.ENV_TIERS, written(tmp_path, {"tiers": found}))
        for name, value in environment.items():
            monkeypatch.setenv(name, str(value))
        return settings.read(None, None, 8)

    return read


def test_a_batch_gets_the_tier_that_begins_at_or_before_its_size(tmp_path):
    table = tiers.read(written(tmp_path, {"tiers": {"9": "ar", "1": 32, "3": 8, "6": "chain"}}), CAPACITY)
    found = [table.name(requests) for requests in (1, 2, 3, 5, 6, 8, 9, 500)]
    assert found == [32, 32, 8, 8, "chain", "chain", "ar", "ar"]
    assert str(table) == "1-2:32,3-5:8,6-8:chain,9-:ar"


def test_each_tier_has_its_widths(engine):
    found = {tier.name: tier for tier in engine({"1": 16, "2": 4, "3": "chain", "4": "ar"}).tiers()}
    widths = {name: (tier.shape.width, tier.shape.block_size) for name, tier in found.items()}
    assert widths == {"16": (17, 8), "4": (5, 8), "chain": (8, 8), "ar": (1, 1)}
    assert [name for name, tier in found.items() if tier.drafts] == ["16", "4", "chain"]
    assert [name for name, tier in found.items() if tier.is_tree] == ["16", "4"]


@pytest.mark.parametrize(("found", "width"), [({"1": 16, "2": "ar"}, 17), ({"1": 4, "2": "chain"}, 8)])
def test_the_engine_is_sized_for_its_widest_step(engine, found, width):
    assert engine(found).engine_width == width


def test_a_table_without_a_tree_can_be_served(engine):
    assert engine({"1": "chain", "8": "ar"}).engine_width == 8
    assert engine({"1": "ar"}).engine_width == 1


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ("{", "is no JSON"),
        ({"tier": {}}, 'has no "tiers"'),
        ({"tiers": {}}, 'has no "tiers"'),
        ({"tiers": {"2": 8}}, "begins at a batch of 2"),
        ({"tiers": {"1": 8, "01": 4}}, "twice"),
        ({"tiers": {"1": 8, "many": 4}}, "'many'"),
        ({"tiers": {"1": 8, "0": 4}}, "'0'"),
        ({"tiers": {"1": 0}}, "budget of at least 1"),
        ({"tiers": {"1": "off"}}, "'off' from batch size 1"),
        ({"tiers": {"1": True}}, "True"),
        ({"tiers": {"1": 8}, "top_k": 0}, '"top_k" is 0'),
    ],
)
def test_a_bad_table_is_named_with_the_fix(tmp_path, document, words):
    with pytest.raises(tiers.TableError) as error:
        tiers.read(written(tmp_path, document), CAPACITY)
    assert words in str(error.value) and tiers.ENV_TIERS in str(error.value) and "\n" not in str(error.value)


def test_a_missing_table_is_named(tmp_path):
    with pytest.raises(tiers.TableError, match="cannot be read"):
        tiers.read(str(tmp_path / "none.json"), CAPACITY)


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"SGLANG_DDTREE_BUDGET": 16}, "SGLANG_DDTREE_BUDGET=16 contradicts"),
        ({"SGLANG_DDTREE_TOPK": 1}, "gives 7 nodes"),
    ],
)
def test_a_table_that_the_other_settings_contradict_is_refused(engine, environment, words):
    with pytest.raises(settings.SettingsError, match=words):
        engine({"1": 8, "4": "ar"}, **environment)


def test_the_table_may_bring_the_top_k(monkeypatch, tmp_path):
    monkeypatch.setenv(tiers.ENV_TIERS, written(tmp_path, {"tiers": {"1": 8}, "top_k": 8}))
    assert settings.read(None, None, 8).top_k == 8
    monkeypatch.setenv(settings.ENV_TOP_K, "4")
    with pytest.raises(settings.SettingsError, match="SGLANG_DDTREE_TOPK=4 contradicts"):
        settings.read(None, None, 8)


def test_without_a_measured_table_little_is_speculated(monkeypatch):
    monkeypatch.setenv(tiers.ENV_TIERS, "conservative")
    found = settings.read(None, None, 8)
    assert found.budget == 8 and found.table.name(5) == "ar" and not found.table.measured
    monkeypatch.setenv(settings.ENV_TOP_K, "1")
    assert settings.read(None, None, 4).budget == 3, "a chain of three nodes is all that such a drafter has"


def test_a_table_from_elsewhere_is_announced(tmp_path):
    table = tiers.read(written(tmp_path, {"tiers": {"1": 8}, "device": "NVIDIA H200"}), CAPACITY)
    assert not tiers.remarks(table, "NVIDIA H200") and not tiers.remarks(table, None)
    (remark,) = tiers.remarks(table, "NVIDIA B200")
    assert "measured on NVIDIA H200" in remark and "NVIDIA B200" in remark
    (remark,) = tiers.remarks(tiers.read("conservative", CAPACITY), None)
    assert "was not measured" in remark and "bench.adaptive_table" in remark


@pytest.mark.parametrize(
    ("starts", "needed"),
    [((1, 3), [1, 2]), ((3, 6), [4, 8]), ((6, 9), [8]), ((9, 1000), [16]), ((17, 1000), [])],
)
def test_a_tier_is_captured_at_the_sizes_its_batches_are_padded_to(starts, needed):
    assert tiers.needed_sizes([1, 2, 4, 8, 16], lambda requests: starts[0] <= requests < starts[1]) == needed


def test_the_tiers_may_be_the_setting_itself():
    table = tiers.read("1:32,3:8,6:chain,9:ar", CAPACITY)
    assert str(table) == "1-2:32,3-5:8,6-8:chain,9-:ar" and table.measured
    with pytest.raises(tiers.TableError, match="SGLANG_DDTREE_TIERS=1:8,4:off cannot be served: .*'off'"):
        tiers.read("1:8,4:off", CAPACITY)
