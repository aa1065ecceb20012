"""How a probe fails: with one sentence that says what was expected, what came and what is likely at fault."""

from __future__ import annotations


class ProbeError(Exception):
    """The server broke the promise of a probe; the message is the whole explanation."""


class NoAnswerError(ProbeError):
    """The server did not answer at all, so that further probes cannot learn anything."""


def expect(held: bool, expected: str, came: str, likely: str) -> None:
    """Raises ProbeError unless `held`.

    expected, came: what should have been seen, and what was.
    likely: the setting or the kind of fault to look at first.
    """
    if not held:
        raise ProbeError(f"expected {expected}; came {came}; likely {likely}")


def excerpt(text: str, limit: int = 120) -> str:
    """`text` quoted on one line, shortened to about `limit` characters."""
    return repr(text if len(text) <= limit else text[:limit] + "…")


def difference(wanted: str, came: str) -> tuple[str, str]:
    """Both texts quoted around the first place where they differ, to be shown side by side."""
    same = next((i for i, (a, b) in enumerate(zip(wanted, came, strict=False)) if a != b), min(len(wanted), len(came)))
    start = max(0, same - 30)
    return excerpt(wanted[start:], 70), excerpt(came[start:], 70)
