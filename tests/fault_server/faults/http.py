"""Faults of the interface: refusals, keys, odd input."""

from __future__ import annotations

from typing import Any

from ..behaviour import Good

GRAMMAR = "not support"


class AcceptsBadRequests(Good):
    """A bad request is answered with status 200."""

    def replied(self, path: str, status: int, body: Any) -> tuple[int, Any]:
        return (200, {}) if status == 400 and GRAMMAR not in str(body) else (status, body)


class BreaksOnBadRequests(Good):
    """A bad request is answered with status 500."""

    def replied(self, path: str, status: int, body: Any) -> tuple[int, Any]:
        return (500, body) if status == 400 and GRAMMAR not in str(body) else (status, body)


class NoKeyNeeded(Good):
    """Whoever has no key is let in."""

    def lets_in(self, key: str, given: str | None) -> bool:
        return given in (None, key)


class AnyKeyFits(Good):
    """Any key is taken for the right one."""

    def lets_in(self, key: str, given: str | None) -> bool:
        return given is not None


class RightKeyRefused(Good):
    """The right key is refused."""

    def lets_in(self, key: str, given: str | None) -> bool:
        return False
