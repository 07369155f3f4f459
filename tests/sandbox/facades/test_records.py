"""What `dataclass` reads twice says the same twice."""

import dataclasses

import pytest

from stoilo.sandbox.facades.records import FACADES
from stoilo.sandbox.language.rules import TASK_MODULE, GuardError

CODE = "ran.append(1)"


class Faces(dict):
    """Shows another name to each of its readers."""

    def __iter__(self):
        return iter(["good"])

    def items(self):
        return [(CODE, int)]


def own_class(annotations):
    body = {"__module__": TASK_MODULE, "__annotations__": annotations}
    return type("Own", (), body)


def test_annotations_with_two_faces_are_refused(pure):
    decorate = FACADES["dataclasses"](pure)["dataclass"]
    with pytest.raises(GuardError, match="STO-G105"):
        decorate(own_class(Faces(good=int)), init=False, repr=False)
    assert decorate(own_class({"good": int}))(1).good == 1


def test_the_library_compiles_what_the_second_face_says():
    made = dataclasses.dataclass(own_class(Faces(good=int)), init=False, repr=False)
    one, other = made(), made()
    one.ran = other.ran = []
    assert one == other
    assert one.ran
