"""What a host tells Prometheus of its records, and what it does with a damaged one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.loading import load_file
from tests.unit.test_alerts import promtool  # noqa: F401

ROOT = Path(__file__).parents[2]
ROLES = ROOT / "ansible" / "roles"
WINDOWS = {"chat": [2.0, 2.6], "code": [4.0, 5.0]}


@pytest.fixture(scope="module")
def kit_metrics():
    """The script, beside the module that the role installs beside it."""
    sys.path.insert(0, str(ROLES / "preflight" / "module_utils"))
    module = load_file(ROLES / "monitoring" / "files" / "kit_metrics.py")
    yield module
    sys.path.remove(str(ROLES / "preflight" / "module_utils"))


@pytest.fixture
def host(tmp_path):
    """A host with one instance that passed its gate; `settings` are those of the script."""
    home = tmp_path / "state" / "instances" / "chat"
    (home / "releases" / "abc").mkdir(parents=True)
    for link in ("current", "good"):
        (home / link).symlink_to("releases/abc")
    report = home / "releases" / "abc" / "smoke.json"
    report.write_text(json.dumps({"probes": [{"verdict": "pass"}] * 20 + [{"verdict": "inconclusive"}]}))
    record = {
        "deployment": {
            "instance": "chat",
            "release": "abc",
            "image": "sha256:1",
            "sglang": "0.5.16",
            "patch_series": "s",
            "pair": {"name": "smollm2-135m"},
            "settings": {"algorithm": "tree", "budget": 15},
            "supervisor": "systemd",
        },
        "smoke": {
            "verdict": "pass",
            "measured": {"by_category": {"chat": 2.3, "code": 4.5}, "windows": WINDOWS},
            "report": str(report),
        },
        "recorded_at": "2026-11-30T12:00:00Z",
    }
    (tmp_path / "state" / "chat.json").write_text(json.dumps(record))
    # A report that older versions kept beside the records is none.
    (tmp_path / "state" / "chat-smoke.json").write_text("{}")
    return {"state": str(tmp_path / "state"), "prompt_mix": {}, "profiles": {}, "certificates": []}


def samples(page: str) -> dict[str, float]:
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line[0] != "#"}


def test_release_ladder_and_gate_are_told(kit_metrics, host, tmp_path):
    found = samples(kit_metrics.collect(host, tmp_path / "no-devices"))
    assert found['ddtree_ladder_steps_down{ddtree_instance="chat",configured="tree",serving="tree"}'] == 0
    assert found['ddtree_gate_passed{ddtree_instance="chat"}'] == 1
    assert found['ddtree_gate_timestamp_seconds{ddtree_instance="chat"}'] == 1796040000
    assert found['ddtree_gate_probes{ddtree_instance="chat",verdict="inconclusive"}'] == 1
    assert found['ddtree_accept_length_low{ddtree_instance="chat"}'] == 2.0
    assert found['ddtree_accept_length_high{ddtree_instance="chat"}'] == 5.0
    assert any('release="abc"' in name and 'good_release="abc"' in name for name in found)
    assert found["ddtree_unreadable_records"] == 0


def test_a_step_down_the_ladder_is_told_and_ends_the_window(kit_metrics, host, tmp_path):
    (Path(host["state"]) / "instances" / "chat" / "fallback.env").write_text("DDTREE_ALGORITHM=ar\n")
    found = samples(kit_metrics.collect(host, tmp_path / "no-devices"))
    assert found['ddtree_ladder_steps_down{ddtree_instance="chat",configured="tree",serving="ar"}'] == 2
    assert not any("accept_length_low" in name for name in found)


def test_a_mix_narrows_the_window(kit_metrics):
    # 8 tokens of chat in 4 steps and 8 of code in 2.
    low, high = kit_metrics.mixed(WINDOWS, {"chat": 0.5, "code": 0.5})
    assert low == pytest.approx(16 / 6)
    assert high == pytest.approx(10 / (5 / 2.6 + 5 / 5.0))
    assert kit_metrics.mixed(WINDOWS, {"chat": 3}) == pytest.approx((2.0, 2.6))


def test_a_damaged_record_is_counted_and_hides_no_other(kit_metrics, host, tmp_path, capsys):
    (Path(host["state"]) / "other.json").write_text('{"deployment": {"instance": "other"}}')
    found = samples(kit_metrics.collect(host, tmp_path / "no-devices"))
    assert found["ddtree_unreadable_records"] == 1
    assert found['ddtree_gate_passed{ddtree_instance="chat"}'] == 1
    assert not any('ddtree_instance="other"' in name for name in found)
    assert "other.json" in capsys.readouterr().err


def test_profile_certificate_and_pcie_errors_are_told(kit_metrics, host, tmp_path):
    certificate = tmp_path / "a.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=a", "-days", "1"]
    subprocess.run([*command, "-keyout", tmp_path / "key", "-out", certificate], check=True, capture_output=True)
    card = tmp_path / "pci" / "0000:01:00.0"
    card.mkdir(parents=True)
    (card / "vendor").write_text("0x10de\n")
    (card / "aer_dev_correctable").write_text("RxErr 3\nBadTLP 4\nTOTAL_ERR_COR 7\n")
    host["profiles"] = {"chat": {"expires": "2026-12-31", "chain_tokens_per_s": 305.2, "concurrency": 1}}
    host["certificates"] = [str(certificate), "/nowhere.pem"]
    page = kit_metrics.collect(host, tmp_path / "pci")
    found = samples(page)
    assert found['ddtree_pcie_errors_total{device="0000:01:00.0",kind="correctable"}'] == 7
    assert found['ddtree_profile_expiry_timestamp_seconds{ddtree_instance="chat"}'] == 1798761600
    assert found['ddtree_chain_tokens_per_second{ddtree_instance="chat"}'] == 305.2
    ends = [found[f'ddtree_certificate_expiry_timestamp_seconds{{path="{path}"}}'] for path in host["certificates"]]
    assert ends[0] == pytest.approx(certificate.stat().st_mtime + 86400, abs=60)
    assert ends[1] == 0


def test_prometheus_takes_the_page_for_a_good_one(kit_metrics, host, tmp_path, promtool):  # noqa: F811
    page = kit_metrics.collect(host, tmp_path / "no-devices")
    done = subprocess.run([promtool, "check", "metrics"], input=page, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_chains_speed_comes_from_the_round_with_the_most_samples(tmp_path):
    facts = load_file(ROLES / "monitoring/filter_plugins/profile_facts.py")
    rounds = [{"arms": {"chain": {"tokens_per_s": speed}, "tree:15:8": {"tokens_per_s": 1}}} for speed in (200, 210)]
    rounds.append({"arms": {"tree:15:8": {"tokens_per_s": 300}}})
    profile = {"expires": "2026-12-31", "workloads": {"latency": {"concurrency": 4, "rounds": rounds}}}
    (tmp_path / "profile.yaml").write_text(json.dumps(profile))
    instances = [{"name": "chat", "profile": "profile.yaml", "workload": "latency"}, {"name": "other"}]
    told = {"expires": "2026-12-31", "chain_tokens_per_s": 210, "concurrency": 4}
    assert facts.profile_facts(instances, str(tmp_path)) == {"chat": told}
