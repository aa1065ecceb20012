"""A profile that is old, or of another host, says so; a good one says nothing."""

import datetime

import pytest

from bench.errors import BenchError
from bench.profile import VALID_DAYS, Here, build, load, settings_for, warnings, write

HOST = {"card": "NVIDIA H200", "sglang": "0.5.16", "patches": "93dcc1ab8290", "target": "aa", "drafter": "bb"}
PROFILE = {
    "host": HOST,
    "measured": "2026-11-30",
    "expires": "2027-02-28",
    "workloads": {"latency": {"settings": {"algorithm": "tree", "budget": 16, "top_k": 4}}},
}
DAY = datetime.date(2026, 12, 24)


def test_no_warning_on_the_host_where_it_was_measured():
    assert warnings(PROFILE, Here(**HOST), DAY) == []


def test_what_is_not_known_is_not_compared():
    assert warnings(PROFILE, Here(card="NVIDIA H200"), DAY) == []


@pytest.mark.parametrize("key", list(HOST))
def test_foreign_profile_is_named_with_both_values(key):
    (warning,) = warnings(PROFILE, Here(**HOST | {key: "other"}), DAY)
    assert f"{key} {HOST[key]}" in warning and "other" in warning and "tune again" in warning


def test_profile_holds_on_its_last_day_and_not_after():
    last = datetime.date(2027, 2, 28)
    assert warnings(PROFILE, Here(), last) == []
    (warning,) = warnings(PROFILE, Here(), last + datetime.timedelta(days=1))
    assert "expired on 2027-02-28" in warning


def test_read_back_from_yaml_with_unquoted_dates(tmp_path):
    path = tmp_path / "profile.yaml"
    path.write_text("host: {card: NVIDIA H200}\nmeasured: 2026-11-30\nexpires: 2026-12-01\nworkloads: {}\n")
    assert len(warnings(load(path), Here(card="NVIDIA H200"), DAY)) == 1


@pytest.mark.parametrize(("text", "said"), [("[]", "host"), ("host: {}", "expires"), ("a: [", "cannot be read")])
def test_other_file_is_refused(tmp_path, text, said):
    path = tmp_path / "profile.yaml"
    path.write_text(text)
    with pytest.raises(BenchError, match=said):
        load(path)


def test_profile_that_was_just_made_holds_here(tmp_path):
    settings = {**HOST, "driver": "580", "versions": {"sglang": HOST["sglang"]}}
    workloads = {"latency": {"arm": "tree:16:4", "settings": {"algorithm": "tree"}}}
    made = build(settings, tmp_path, workloads, priors={"latency": "tree:8:4"})
    write(tmp_path / "new" / "profile.yaml", made)
    found = load(tmp_path / "new" / "profile.yaml")
    today = datetime.datetime.now(datetime.timezone.utc).date()
    assert warnings(found, Here(**HOST), today + datetime.timedelta(days=VALID_DAYS)) == []
    assert warnings(found, Here(**HOST), today + datetime.timedelta(days=VALID_DAYS + 1)) != []
    prior = found["workloads"]["latency"]["prior"]
    assert prior == {"arm": "tree:8:4", "source": "reported by others", "kept": False}


def test_workload_that_was_not_tuned_is_refused():
    assert settings_for(PROFILE, "latency")["budget"] == 16
    with pytest.raises(BenchError, match="no workload throughput: use one of latency"):
        settings_for(PROFILE, "throughput")
