"""Short ways to say how a check came out."""

from __future__ import annotations

from stoilo.server.engines.stock.checkup.snapshot import Finding, Verdict

__all__ = ["fail", "ok", "skip", "warn"]


def ok(name: str, text: str) -> Finding:
    """All is well."""
    return Finding(name, Verdict.OK, text)


def warn(name: str, text: str, advice: str) -> Finding:
    """It works, and will not for long or not well."""
    return Finding(name, Verdict.WARN, text, advice)


def fail(name: str, text: str, advice: str) -> Finding:
    """It does not work, or not safely."""
    return Finding(name, Verdict.FAIL, text, advice)


def skip(name: str, text: str) -> Finding:
    """It could not be looked at; another finding says why."""
    return Finding(name, Verdict.SKIP, text)
