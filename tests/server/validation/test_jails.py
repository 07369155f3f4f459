from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from stoilo.server.validation.validators import ValidatorJails

PATIENCE_S = 30.0


class Starting:
    """Jails of which that of `tensor` takes until it is let go."""

    def __init__(self) -> None:
        self.began, self.let_go = threading.Event(), threading.Event()
        self.started: list[str] = []

    def __call__(self, level: str, _libraries: tuple[str, ...]) -> Any:
        self.started.append(level)
        if level == "tensor":
            self.began.set()
            assert self.let_go.wait(PATIENCE_S)
        return SimpleNamespace(zygote_pid=0)


def test_level_that_starts_slowly_holds_up_no_other() -> None:
    start = Starting()
    jails = ValidatorJails(start)
    slow = [threading.Thread(target=jails.of, args=("tensor",)) for _ in range(2)]
    for thread in slow:
        thread.start()
    assert start.began.wait(PATIENCE_S)
    assert jails.of("pure")
    assert jails.of("pure")
    start.let_go.set()
    for thread in slow:
        thread.join()
    assert start.started == ["tensor", "pure"]
