import pytest

from tests.support.libraries import close_jails


@pytest.fixture(scope="module", autouse=True)
def _closed_jails():
    """A file's jails end with it: those of several libraries take a gigabyte."""
    yield
    close_jails()
