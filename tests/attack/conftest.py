"""One runner with warm jails for every case of the corpus."""

from pathlib import Path

import pytest

from stoilo.cli.suite import open_runner, read_cases

CASES = Path(__file__).parent / "cases"


@pytest.fixture(scope="session")
def runner():
    with open_runner(read_cases(CASES), controls=True) as opened:
        yield opened
