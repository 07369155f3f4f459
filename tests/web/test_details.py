import msgspec
import pytest

from stoilo.core.codebook import load_codebook
from stoilo.web.details import describe_permission, remarks_of
from tests.support.archive import ArchiveWriter


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    with ArchiveWriter(tmp_path_factory.mktemp("data")) as archive:
        return archive.admit("t", b"def task(kwargs):\n    return 1\n")


def test_remark_has_the_title_of_its_code() -> None:
    (remark,) = remarks_of("STO-P034", "")
    assert (remark.code, remark.title) == (
        "STO-P034",
        load_codebook()["STO-P034"].title,
    )
    assert remarks_of("STO-Z999")[0].title == "a code of another version"


def test_level_in_force_is_described(record):
    permission = describe_permission(record)
    assert permission.summary
    assert "math" in permission.modules


@pytest.mark.parametrize("fields", [{"level_digest": "ab" * 32}, {"level": "other"}])
def test_level_of_another_version_is_not_described(record, fields):
    changed = msgspec.structs.replace(record, **fields)
    assert describe_permission(changed).summary == ""
