"""Captures of one session: what is unchanged is not read and written again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stoilo.client.capture.arguments import Values
from stoilo.client.capture.fingerprints import (
    Fingerprint,
    Key,
    Names,
    UnwatchedError,
)
from stoilo.client.capture.modules import (
    Captured,
    CapturedCalls,
    Written,
    discover_calls,
    write,
)
from stoilo.core.errors import UsageError

MOST_KEPT = 32  # sources with what they reach; the longest unused goes first

Validators = tuple[Callable[[Any], bool] | None, Callable[[Any, Any], bool] | None]


class Captures:
    """Captures, each written once while nothing that it depends on changes.

    It keeps the functions and data of the newest alive; threads take turns.
    """

    def __init__(self) -> None:
        self._names = Names()
        self._kept: OrderedDict[Key, tuple[Written, list[object]]] = OrderedDict()
        self._lock = threading.RLock()
        self.written = 0  # how many sources were written anew

    def task(
        self,
        func: Callable[[dict[str, Any]], Any],
        kwargs: Mapping[str, Any] | None = None,
        init_valid: Callable[[Any], bool] | None = None,
        compare_valid: Callable[[Any, Any], bool] | None = None,
    ) -> Captured:
        """Capture one call; see `stoilo.client.capture.capture_task`."""
        calls = [dict(kwargs or {})]
        return self.calls(func, calls, init_valid, compare_valid).pack_one()

    def calls(
        self,
        func: Callable[..., Any],
        calls: Sequence[Mapping[str, Any]],
        init_valid: Callable[[Any], bool] | None = None,
        compare_valid: Callable[[Any, Any], bool] | None = None,
        *,
        spread: bool = False,
    ) -> CapturedCalls:
        """Capture many calls; see `stoilo.client.capture.capture_calls`."""
        validators = (init_valid, compare_valid)
        with self._lock:
            found = self._find(func, calls, validators, spread=spread)
            return found.with_calls(calls)

    def _find(
        self,
        func: Callable[..., Any],
        calls: Sequence[Mapping[str, Any]],
        validators: Validators,
        *,
        spread: bool,
    ) -> Written:
        key, _ = self._key(func, calls, validators, spread=spread)
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key][0]
        self.written += 1
        written = write(func, calls, validators, spread=spread)
        # Again: another thread may have changed something while the source was written.
        # Calls of plain data (no key has a part of them) need not be looked through again.
        again, alive = self._key(
            func, calls if key and key[2] else (), validators, spread=spread
        )
        if key and again == key:
            self._kept[key] = (written, alive)
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        return written

    def _key(
        self,
        func: Callable[..., Any],
        calls: Sequence[Mapping[str, Any]],
        validators: Validators,
        *,
        spread: bool,
    ) -> tuple[Key, list[object]]:
        """Return what the source depends on; empty where nobody could tell."""
        task = Fingerprint(self._names)
        rules = Fingerprint(self._names, is_literal=True)
        try:
            first = task.root(func)
            discover_calls(Values(task), calls)
            checks = tuple(map(rules.root, validators))
        except (
            UnwatchedError,
            UsageError,
            RecursionError,
        ):  # capture says what is wrong
            return (), []
        return (spread, first, tuple(task.placed), checks), [*task.alive, *rules.alive]
