from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.faulty_log import LogKey
from tests.support.local_witness import GrowingLog, LocalWitness

ORIGIN = "log.test/t"


@pytest.fixture
def key() -> LogKey:
    return LogKey(ORIGIN)


@pytest.fixture
def log(key: LogKey) -> GrowingLog:
    return GrowingLog(key)


@pytest.fixture
def make_witness(tmp_path: Path, key: LogKey) -> Iterator[Callable[..., LocalWitness]]:
    made: list[LocalWitness] = []

    def make(name: str = "w1", **options: object) -> LocalWitness:
        made.append(
            LocalWitness(tmp_path / name, f"witness.test/{name}", key, **options)  # type: ignore[arg-type]
        )
        return made[-1]

    yield make
    for one in made:
        one.store.close()
