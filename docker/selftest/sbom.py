"""The image's bill of materials as CycloneDX 1.6, printed by `python3 sbom.py`; the build keeps it beside the kit.

Every installed Python package, with the sha256 of the wheel that the lock names, and every package of Debian. No date
and no serial number: the same content gives the same file.
"""

import json
import os
import re
import subprocess
import sysconfig
from email.parser import HeaderParser
from pathlib import Path

from subject import KIT, Subject, normal

LOCKED = re.compile(r"^([\w.-]+)==\S+\s*\\\s*\n\s*--hash=sha256:([0-9a-f]{64})", re.M)
DEBIAN = "${Package}\\t${Version}\\t${Architecture}\\n"


def main() -> None:
    site = Path(sysconfig.get_path("purelib"))
    found = bill(Subject.of([site], os.environ["DDTREE_GENERATION"]), debian_packages())
    print(json.dumps(found, indent=1, sort_keys=True))


def bill(subject: Subject, debian: list[tuple[str, str, str]]) -> dict:
    """The document. debian: name, version and architecture of each package."""
    wheels, parts = wheel_hashes(subject), []
    for name, (version, folder) in sorted(subject.installed().items()):
        parts.append(python_component(name, version, folder / "METADATA", wheels.get(name)))
    parts += [debian_component(*package) for package in sorted(debian)]
    image = f"sglang-ddtree-{subject.build['GENERATION']}"
    about = {"type": "container", "name": image, "version": subject.sglang(), "bom-ref": image}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": about},
        "components": parts,
    }


def wheel_hashes(subject: Subject) -> dict[str, str]:
    """sha256 of the locked wheel of each package by its normal name."""
    names = (name.replace("VERSION", subject.sglang()) for name in subject.build["LOCKS"].split())
    texts = ((KIT / "locks" / f"{name}.txt").read_text() for name in names)
    return {normal(name): digest for text in texts for name, digest in LOCKED.findall(text)}


def python_component(name: str, version: str, metadata: Path, digest: str | None) -> dict:
    purl = f"pkg:pypi/{name}@{version.replace('+', '%2B')}"
    found = {"type": "library", "name": name, "version": version, "purl": purl, "bom-ref": purl}
    if digest:
        found["hashes"] = [{"alg": "SHA-256", "content": digest}]
    license_ = HeaderParser().parsestr(metadata.read_text(errors="replace")).get("License-Expression")
    return found | ({"licenses": [{"expression": license_}]} if license_ else {})


def debian_component(name: str, version: str, architecture: str) -> dict:
    purl = f"pkg:deb/debian/{name}@{version.replace('+', '%2B').replace(':', '%3A')}?arch={architecture}"
    return {"type": "library", "name": name, "version": version, "purl": purl, "bom-ref": purl}


def debian_packages() -> list[tuple[str, str, str]]:
    listed = subprocess.run(
        ["dpkg-query", "--show", f"--showformat={DEBIAN}"], capture_output=True, text=True, check=True
    )
    return [tuple(line.split("\t")) for line in listed.stdout.splitlines()]


if __name__ == "__main__":
    main()
