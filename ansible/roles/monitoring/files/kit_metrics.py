#!/usr/bin/env python3
"""What no exporter knows of a host of this kit, in Prometheus' text format: kit_metrics.py SETTINGS OUTPUT

SETTINGS is a JSON file: `state` (folder of records), `prompt_mix`, `profiles` and `certificates` as the role monitoring
wrote them. OUTPUT is replaced at once, so that the node exporter never reads half of it. A record that cannot be read
is counted in ddtree_unreadable_records and leaves the others as they are.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path

import nvidia_software

LADDER = ("tree", "chain", "ar")
NVIDIA = "0x10de"
AER_KINDS = ("correctable", "nonfatal", "fatal")
COMMAND_S = 20

HELP = {
    "ddtree_release_info": "The release that an instance runs and the one that passed its gate last.",
    "ddtree_ladder_steps_down": "Steps below the algorithm of the release: 1 is chain in place of tree.",
    "ddtree_gate_passed": "Whether the record of the instance says that it passed its gate.",
    "ddtree_gate_timestamp_seconds": "When the record of the instance was written.",
    "ddtree_gate_probes": "Probes of the last gate by verdict.",
    "ddtree_accept_length_at_gate": "Completion tokens per target step at the gate, by category of prompts.",
    "ddtree_accept_length_low": "Lower bound of the accept length for the prompt mix of the instance.",
    "ddtree_accept_length_high": "Upper bound of the accept length for the prompt mix of the instance.",
    "ddtree_profile_expiry_timestamp_seconds": "Until when the tuned profile of the instance is believed.",
    "ddtree_chain_tokens_per_second": "Output tokens per second of the chain in the tuned profile.",
    "ddtree_chain_concurrency": "Requests at once at which that was measured.",
    "ddtree_certificate_expiry_timestamp_seconds": "When a certificate ends; 0 where it cannot be read.",
    "ddtree_driver_info": "Version of the loaded NVIDIA driver and of the installed library.",
    "ddtree_driver_mismatch": "1 while driver and library differ, as after an upgrade that waits for a reboot.",
    "ddtree_reboot_required": "1 while the distribution asks for a reboot.",
    "ddtree_xid_events_total": "Xid errors in the kernel's log since the boot.",
    "ddtree_pcie_errors_total": "Errors that a card's PCI Express link reported since the boot.",
    "ddtree_unreadable_records": "Records of the kit that could not be read.",
}


class Page:
    """Samples by metric, in the order in which they were added."""

    def __init__(self):
        self._samples: dict[str, list[str]] = {}

    def add(self, name: str, value: float, **labels: str) -> None:
        pairs = ",".join(f"{key}={json.dumps(text, ensure_ascii=False)}" for key, text in labels.items())
        series = f"{name}{{{pairs}}}" if pairs else name
        self._samples.setdefault(name, []).append(f"{series} {value:.10g}")

    def include(self, other: Page) -> None:
        for name, samples in other._samples.items():
            self._samples.setdefault(name, []).extend(samples)

    def text(self) -> str:
        lines = []
        for name, samples in self._samples.items():
            kind = "counter" if name.endswith("_total") else "gauge"
            lines += [f"# HELP {name} {HELP[name]}", f"# TYPE {name} {kind}", *samples]
        return "\n".join(lines) + "\n"


def output(*command: str) -> str:
    """What a command printed; nothing where it fails or is missing."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def seconds(text: str) -> float:
    """Seconds since 1970 of an ISO 8601 date or time in UTC."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).replace(tzinfo=timezone.utc).timestamp()


def records(state: Path) -> Iterator[Path]:
    yield from sorted(path for path in state.glob("*.json") if not path.name.endswith("-smoke.json"))


def add_instance(page: Page, state: Path, record: Mapping, mix: Mapping[str, float]) -> None:
    """Everything about one instance that stands in its record and its release."""
    deployed, smoke = record["deployment"], record["smoke"]
    labels = {"ddtree_instance": deployed["instance"]}
    home = state / "instances" / deployed["instance"]
    page.add(
        "ddtree_release_info",
        1,
        **labels,
        release=deployed["release"],
        good_release=link_name(home / "good"),
        image=deployed["image"],
        sglang=deployed["sglang"],
        patch_series=deployed["patch_series"],
        pair=deployed["pair"]["name"],
        supervisor=deployed["supervisor"],
    )
    configured = deployed["settings"]["algorithm"]
    serving = fallen_to(home) or configured
    down = LADDER.index(serving) - LADDER.index(configured)
    page.add("ddtree_ladder_steps_down", down, **labels, configured=configured, serving=serving)
    page.add("ddtree_gate_passed", smoke["verdict"] == "pass", **labels)
    page.add("ddtree_gate_timestamp_seconds", seconds(record["recorded_at"]), **labels)
    add_probes(page, smoke["report"], labels)
    measured = smoke["measured"]
    for category, length in measured.get("by_category", {}).items():
        page.add("ddtree_accept_length_at_gate", length, **labels, category=category)
    # What was recorded holds for the algorithm that was gated, not for a lower step of the ladder.
    if measured.get("windows") and not down:
        low, high = mixed(measured["windows"], mix)
        page.add("ddtree_accept_length_low", low, **labels)
        page.add("ddtree_accept_length_high", high, **labels)


def mixed(windows: Mapping[str, list[float]], mix: Mapping[str, float]) -> tuple[float, float]:
    """Bounds of the accept length of a mix: of tokens served, a share of each category; without one, of any mix.

    Tokens add up, and so do steps: a mix of shares s with accept lengths a has 1 / sum(s / a).
    """
    if not mix:
        return min(low for low, _ in windows.values()), max(high for _, high in windows.values())
    whole = sum(mix.values())
    low, high = (whole / sum(share / windows[category][end] for category, share in mix.items()) for end in (0, 1))
    return low, high


def add_probes(page: Page, report: str, labels: Mapping[str, str]) -> None:
    """Verdicts of the last gate; none where its report is gone."""
    try:
        probes = json.loads(Path(report).read_text(encoding="utf-8"))["probes"]
    except OSError:
        return
    for verdict in ("pass", "fail", "inconclusive"):
        count = sum(probe["verdict"] == verdict for probe in probes)
        page.add("ddtree_gate_probes", count, **labels, verdict=verdict)


def link_name(link: Path) -> str:
    return link.readlink().name if link.is_symlink() else ""


def fallen_to(home: Path) -> str:
    """Algorithm of the ladder that holds until the next roll-out; empty for the release's own."""
    try:
        return (home / "fallback.env").read_text(encoding="utf-8").strip().removeprefix("DDTREE_ALGORITHM=")
    except OSError:
        return ""


def add_profiles(page: Page, profiles: Mapping[str, Mapping]) -> None:
    for name, profile in profiles.items():
        # It holds through its last day.
        page.add("ddtree_profile_expiry_timestamp_seconds", seconds(profile["expires"]) + 86400, ddtree_instance=name)
        if profile["chain_tokens_per_s"]:
            page.add("ddtree_chain_tokens_per_second", profile["chain_tokens_per_s"], ddtree_instance=name)
            page.add("ddtree_chain_concurrency", profile["concurrency"], ddtree_instance=name)


def add_certificates(page: Page, paths: list[str]) -> None:
    for path in paths:
        said = output("openssl", "x509", "-noout", "-enddate", "-in", path).strip().removeprefix("notAfter=")
        ends = datetime.strptime(said, "%b %d %H:%M:%S %Y %Z").replace(tzinfo=timezone.utc).timestamp() if said else 0
        page.add("ddtree_certificate_expiry_timestamp_seconds", ends, path=path)


def add_driver(page: Page) -> None:
    loaded, library = nvidia_software.loaded_driver()["version"], nvidia_software.driver_library()
    page.add("ddtree_reboot_required", Path("/run/reboot-required").exists())
    if not loaded:
        return
    page.add("ddtree_driver_info", 1, loaded=loaded, library=library)
    page.add("ddtree_driver_mismatch", bool(library) and loaded != library)
    kernel = output("journalctl", "--dmesg", "--boot", "--output=cat", "--no-pager", "--grep=NVRM: Xid")
    page.add("ddtree_xid_events_total", kernel.count("NVRM: Xid"))


def add_pcie(page: Page, devices: Path) -> None:
    """Sums of /sys/bus/pci/devices/ADDRESS/aer_dev_KIND for NVIDIA's devices whose link reports errors."""
    for device in sorted(devices.glob("*")):
        if (device / "vendor").read_text(encoding="ascii").strip() != NVIDIA:
            continue
        for kind in AER_KINDS:
            try:
                rows = (device / f"aer_dev_{kind}").read_text(encoding="ascii").splitlines()
            except OSError:
                continue
            total = sum(int(row.split()[1]) for row in rows if row.startswith("TOTAL_ERR"))
            page.add("ddtree_pcie_errors_total", total, device=device.name, kind=kind)


def collect(settings: Mapping, devices: Path = Path("/sys/bus/pci/devices")) -> str:
    """The whole page."""
    page, state, unreadable = Page(), Path(settings["state"]), 0
    for path in records(state):
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            part = Page()
            add_instance(part, state, record, settings["prompt_mix"].get(path.stem, {}))
        except (OSError, ValueError, KeyError) as error:
            print(f"kit-metrics: {path}: {error!r}", file=sys.stderr)
            unreadable += 1
        else:
            page.include(part)
    page.add("ddtree_unreadable_records", unreadable)
    add_profiles(page, settings["profiles"])
    add_certificates(page, settings["certificates"])
    add_driver(page)
    add_pcie(page, devices)
    return page.text()


def main() -> None:
    settings, target = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), Path(sys.argv[2])
    fresh = target.with_suffix(".new")
    fresh.write_text(collect(settings), encoding="utf-8")
    fresh.chmod(0o644)
    fresh.replace(target)


if __name__ == "__main__":
    main()
