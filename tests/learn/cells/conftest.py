"""One process forks all ranks of a session's groups: it has imported torch."""

import pytest

from tests.support.ranks import hosted


@pytest.fixture(scope="package", autouse=True)
def host_of_ranks():
    with hosted():
        yield
