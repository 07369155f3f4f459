from pathlib import Path

import pytest

from tests.support.auditlog import SampleLog, write_sample_log


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> SampleLog:
    """A log of 300 foreign leaves and four tasks; read only."""
    folder: Path = tmp_path_factory.mktemp("sample")
    return write_sample_log(folder / "data", plain=300)
