"""What changes between two states of the kit, for whoever upgrades: python scripts/upgrade_notes.py FROM [TO]

FROM and TO (default: the checkout) are git revisions. Read are versions.yaml, the GPU groups' driver and toolkit, the
model pairs and the patch series; printed is Markdown: what changes, and what each change asks for.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
GROUPS = ("sm90", "sm100", "sm103", "sm120")
DRIVER, TOOLKIT, IMAGE = "nvidia_driver_version", "container_toolkit_version", "sglang_image"
REBUILD = "build the image anew; the roll-out lets it pass the gate on the canary first"
# Path in versions.yaml, and what a change of it asks for.
ACTIONS = {
    "sglang.default": "instances without `sglang` of their own get it with the next `ansible-playbook site.yml`",
    "torch": REBUILD,
    "triton": REBUILD,
    "python": REBUILD,
}

# Text of a file in a revision, empty where it is not there.
Read = Callable[[str], str]


class NotesError(Exception):
    """One sentence that says what is wrong with the arguments."""


def reader(root: Path, revision: str | None) -> Read:
    """Reads files of a revision, or of the checkout for None."""
    if revision is None:
        return lambda name: (root / name).read_text(encoding="utf-8") if (root / name).is_file() else ""
    known = git(root, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    if not known:
        raise NotesError(f"{revision} is no revision of this checkout: name a commit, a tag or a branch")
    return lambda name: git(root, "show", f"{revision}:{name}")


def git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else ""


def load(read: Read, name: str) -> dict:
    return yaml.safe_load(read(name)) or {}


def flat(data: dict, prefix: str = "") -> dict[str, str]:
    """Nested keys as one path; a key with dots, as a version is, keeps them."""
    found = {}
    for key, value in data.items():
        path = f"{prefix}{key}"
        found |= flat(value, f"{path}.") if isinstance(value, dict) else {path: str(value)}
    return found


def versions(old: Read, new: Read) -> list[str]:
    """Changes of versions.yaml."""
    before, after = (load(read, "versions.yaml") for read in (old, new))
    notes = []
    supported = [set((data.get("sglang") or {}).get("supported") or {}) for data in (before, after)]
    for version in sorted(supported[1] - supported[0]):
        notes.append(f'SGLang {version} is supported: an instance gets it with `sglang: "{version}"`')
    for version in sorted(supported[0] - supported[1]):
        notes.append(f"SGLang {version} is **not supported any more**: move instances that name it before the roll-out")
    left, right = flat(before), flat(after)
    for version in sorted(supported[0] & supported[1]):
        key = f"sglang.supported.{version}.sha256"
        if left.get(key) != right.get(key):
            notes.append(f"SGLang {version} is another file: {REBUILD}")
    rest = [key for key in sorted(left.keys() | right.keys()) if not key.startswith("sglang.supported.")]
    for key in rest:
        if left.get(key) != right.get(key):
            notes.append(
                f"{key}: {left.get(key, 'none')} becomes {right.get(key, 'none')}: {ACTIONS.get(key, REBUILD)}"
            )
    return notes


def patches(old: Read, new: Read) -> list[str]:
    """Changes of the patch series of versions that both know."""
    known = [set((load(read, "versions.yaml").get("sglang") or {}).get("supported") or {}) for read in (old, new)]
    names = {version: f"patches/sglang_ddtree/manifests/{version}.json" for version in sorted(known[0] & known[1])}
    return [
        f"the patch series of SGLang {version} changes: {REBUILD}"
        for version, name in names.items()
        if old(name) != new(name)
    ]


def hosts(old: Read, new: Read) -> list[str]:
    """Changes of what GPU hosts need below the image."""
    notes = []
    for group in GROUPS:
        before, after = (load(read, f"ansible/group_vars/{group}.yml") for read in (old, new))
        for key in (DRIVER, TOOLKIT, IMAGE):
            if before.get(key) == after.get(key):
                continue
            asks = "run `ansible-playbook ansible/gpu_hosts.yml` first"
            asks += ", which reboots one host after the other" if key == DRIVER else ""
            asks = REBUILD if key == IMAGE else asks
            notes.append(f"{group}: {key} {before.get(key, 'none')} becomes {after.get(key, 'none')}: {asks}")
    return notes


def units(old: Read, new: Read) -> list[str]:
    name = "systemd/sglang@.service"
    if old(name) == new(name):
        return []
    return ["the unit of the instances changes: every instance is started anew, one batch of hosts after the other"]


def notes(old: Read, new: Read) -> str:
    """The whole page."""
    parts = {
        "Versions": versions(old, new),
        "Patches": patches(old, new),
        "GPU hosts": hosts(old, new),
        "Units": units(old, new),
    }
    lines = []
    for title, found in parts.items():
        if found:
            lines += [f"## {title}", "", *(f"- {note}" for note in found), ""]
    if not lines:
        return "Nothing that an upgrade has to know of changes.\n"
    back = "`ansible-playbook ansible/rollback.yml` goes back to the release before, on every host that keeps it."
    return "\n".join([*lines, "## Back", "", back, ""])


def main(arguments: list[str]) -> int:
    if not 1 <= len(arguments) <= 2:
        print("usage: python scripts/upgrade_notes.py FROM [TO]", file=sys.stderr)
        return 2
    try:
        old, new = reader(ROOT, arguments[0]), reader(ROOT, arguments[1] if len(arguments) == 2 else None)
    except NotesError as error:
        print(f"upgrade-notes: {error}", file=sys.stderr)
        return 2
    print(notes(old, new), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
