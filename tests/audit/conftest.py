import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stoilo.audit.log.batching import SequencerSettings
from stoilo.audit.log.sequencer import Sequencer
from stoilo.core.errors import WaitError
from tests.support.faulty_log import LogKey

ORIGIN = "log.test/t"


@pytest.fixture
def key() -> LogKey:
    return LogKey(ORIGIN)


@pytest.fixture
def open_log(tmp_path: Path, key: LogKey) -> Iterator[Callable[..., Sequencer]]:
    """Open the log of tmp_path/data; everything opened is closed at the end."""
    opened: list[Sequencer] = []

    def opener(data_dir: Path = tmp_path / "data", **options: Any) -> Sequencer:
        options.setdefault("policy", key.policy)
        options.setdefault("settings", SequencerSettings(retry_s=0.05, close_s=2))
        log = Sequencer.open(data_dir, ORIGIN, options.pop("sign", key.sign), **options)
        opened.append(log)
        return log

    yield opener
    for log in opened:
        log.close()


@pytest.fixture
def wait_refused() -> Callable[[Sequencer, int, str], None]:
    """Return what waits until publishing is seen to fail for a reason."""

    def wait(log: Sequencer, index: int, reason: str) -> None:
        said = ""
        for _ in range(300):
            with pytest.raises(WaitError) as caught:
                log.wait_published(index, 0.2)
            said = str(caught.value)
            if "STO-L056" in said and re.search(reason, said):
                return
        pytest.fail(f"{reason} was never said, but: {said}")

    return wait


@pytest.fixture
def filled(tmp_path: Path, open_log: Callable[..., Sequencer]) -> Path:
    """Return a data directory whose closed log holds 600 leaves."""
    with open_log(tmp_path / "data") as log:
        for start in range(0, 600, 150):
            log.append_many([b"leaf %d" % n for n in range(start, start + 150)])
            log.wait_published(start + 149, 60)
    return tmp_path / "data"
