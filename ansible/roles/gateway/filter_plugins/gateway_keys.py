"""The file of API keys: who may come in, and what the host keeps of it."""

import hashlib
import re

KEY = re.compile(r"[A-Za-z0-9_.~+/=-]{32,}")
NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")


def _entries(text: str) -> list[tuple[int, list[str]]]:
    lines = enumerate(text.splitlines(), start=1)
    return [(number, line.split()) for number, line in lines if line.strip() and not line.lstrip().startswith("#")]


def key_refusals(text: str, needed: list[str]) -> list[str]:
    """Reasons why a file of keys cannot be used, without a key in them; `needed` are names it must have."""
    entries, reasons, owners = _entries(text), [], {}
    for number, words in entries:
        if len(words) != 2 or not NAME.fullmatch(words[0]):
            reasons.append(f"line {number} is not a name of lower-case letters, digits, - and _, and a key")
        elif not KEY.fullmatch(words[1]):
            reasons.append(
                f"the key of {words[0]} in line {number} is shorter than 32 characters or has others than letters, "
                "digits and _.~+/=-: make one with openssl rand -hex 32"
            )
        elif owners.setdefault(words[1], words[0]) != words[0]:
            reasons.append(f"{owners[words[1]]} and {words[0]} have the same key: give each its own")
    names = {words[0] for _, words in entries}
    reasons += [f"it has no key for {name}: add a line" for name in needed if name not in names]
    return reasons if entries else ["it has no key: add a line with a name and a key"]


def key_digests(text: str) -> dict[str, str]:
    """SHA-256 of each key, in hexadecimal -> name. Keys are long and random, so that no salt is needed."""
    return {hashlib.sha256(words[1].encode()).hexdigest(): words[0] for _, words in _entries(text)}


def newest_key(text: str, name: str) -> str:
    """The last key of a name, the one to send."""
    return [words[1] for _, words in _entries(text) if words[0] == name][-1]


class FilterModule:
    def filters(self) -> dict:
        return {"key_refusals": key_refusals, "key_digests": key_digests, "newest_key": newest_key}
