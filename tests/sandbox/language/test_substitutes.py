import numpy as np
import pytest

from stoilo.sandbox.language.rules import GuardError
from stoilo.sandbox.language.substitutes import read_narrowed

RECORD = np.dtype([("a", "<i8"), ("b", "<f4")])


class Writer:
    """Compared or joined with a view, it writes to what lies behind."""

    def __eq__(self, other):
        other["a"] = other["b"]
        return True

    __hash__ = None


def test_fields_are_shown_by_a_copy():
    fields = read_narrowed(RECORD, "fields")
    assert dict(fields) == dict(RECORD.fields)
    assert fields == Writer()
    assert RECORD.fields["a"][1] == 0
    assert read_narrowed(np.dtype("f8"), "fields") is None


def test_library_itself_can_be_written_through():
    kind = np.dtype([("a", "<i8"), ("b", "<f4")])
    assert kind.fields == Writer()
    assert kind.fields["a"] is kind.fields["b"]


def test_setflags_only_takes_rights_away():
    array = np.zeros(2)
    setflags = read_narrowed(array, "setflags")
    setflags()
    setflags(write=False)
    assert not array.flags.writeable
    for options in ({"write": True}, {"align": False}, {"write": False, "uic": False}):
        with pytest.raises(GuardError):
            setflags(**options)


@pytest.mark.parametrize("value", [object(), np.float64(1), [], np.dtype])
def test_same_name_elsewhere_stays_refused(value):
    with pytest.raises(GuardError):
        read_narrowed(value, "fields")
