"""What is tested: folders with installed packages, and what the build of a generation promises about them."""

import csv
import fnmatch
import json
import re
from dataclasses import dataclass
from pathlib import Path

KIT = Path(__file__).resolve().parent.parent
PIN = re.compile(r"^([\w.-]+)==(\S+)", re.M)


class SubjectError(Exception):
    """One sentence that says what cannot be tested and what to pass."""


class Skipped(Exception):  # noqa: N818 - no error
    """A check that has nothing to look at here, with the reason."""


def generations() -> dict[str, dict[str, str]]:
    """Build arguments by generation: the file that the build reads."""
    targets = json.loads((KIT / "bake.json").read_text())["target"]
    return {name: target["args"] for name, target in targets.items() if "GENERATION" in target["args"]}


@dataclass(frozen=True)
class Subject:
    """`sites` are searched in order, as Python does; `build` holds the generation's build arguments."""

    sites: tuple[Path, ...]
    build: dict[str, str]

    @classmethod
    def of(cls, sites: list[Path], generation: str) -> "Subject":
        known = generations()
        if generation not in known:
            raise SubjectError(f"--generation {generation} is not known: use one of {', '.join(known)}")
        if missing := [str(site) for site in sites if not site.is_dir()]:
            raise SubjectError(f"--site {missing[0]} is no folder: pass the one that Python installs packages into")
        return cls(tuple(site.resolve() for site in sites), known[generation])

    @property
    def capability(self) -> int | None:
        """Compute capability times ten, None on a CPU."""
        text = self.build["COMPUTE_CAPABILITY"]
        return int(text.replace(".", "")) if text else None

    def find(self, name: str) -> Path | None:
        """A file or folder below the first site that has it."""
        return next((site / name for site in self.sites if (site / name).exists()), None)

    def installed(self) -> dict[str, tuple[str, Path]]:
        """Version and metadata folder of each package by its normal name."""
        found: dict[str, tuple[str, Path]] = {}
        for site in self.sites:
            for folder in sorted(site.glob("*.dist-info")):
                name, version = folder.name.removesuffix(".dist-info").rsplit("-", 1)
                found.setdefault(normal(name), (version, folder))
        return found

    def sglang(self) -> str:
        version, _ = self.installed().get("sglang", ("", None))
        if not version:
            raise SubjectError(f"no sglang in {', '.join(map(str, self.sites))}: pass its folder with --site")
        return version

    def locked(self) -> dict[str, str]:
        """Version that the locks want of each package."""
        pins: dict[str, str] = {}
        for name in self.build["LOCKS"].split():
            path = KIT / "locks" / f"{name.replace('VERSION', self.sglang())}.txt"
            if not path.is_file():
                raise SubjectError(f"SGLang {self.sglang()} has no lock {path.name} for this generation")
            pins |= {normal(name): version for name, version in PIN.findall(path.read_text())}
        return pins

    def locked_files(self, site: Path) -> list[str]:
        """Files of the locked packages in one site, from their own lists."""
        locked, paths = self.locked(), []
        for name, (_, folder) in self.installed().items():
            record = folder / "RECORD"
            if name in locked and folder.parent == site and record.is_file():
                with record.open(newline="") as rows:
                    paths += [row[0] for row in csv.reader(rows)]
        return paths

    def dropped(self, path: str) -> bool:
        """Whether the build leaves a file of a package out on purpose."""
        return any(fnmatch.fnmatch(path, pattern) for pattern in self.build["DROP"].split())


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
