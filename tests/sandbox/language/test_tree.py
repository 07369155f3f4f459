import sys
import types

import msgspec
import pytest

from stoilo.core.errors import InternalError
from stoilo.sandbox.language.ownership import may_assign
from stoilo.sandbox.language.rules import (
    GuardError,
    close_members,
    find_class,
    hidden_names,
)


class Carrier:
    """Stands for a library class that gives away more than data."""

    shown = 1

    def pointer(self):
        return 4096

    def _private(self):
        return self.pointer


@pytest.fixture
def library(monkeypatch):
    """A module with a fresh copy of the class."""
    module = types.ModuleType("carrier_library")
    module.Carrier = type("Carrier", (), dict(vars(Carrier)))
    monkeypatch.setitem(sys.modules, "carrier_library", module)
    return module


def close(level, *listed):
    close_members(
        msgspec.structs.replace(level, members={"carrier_library.Carrier": listed})
    )


def test_name_that_is_not_listed_is_closed_on_class_and_instance(pure, library):
    close(pure, "shown")
    assert library.Carrier().shown == 1
    for owner in (library.Carrier, library.Carrier()):
        with pytest.raises(GuardError, match="'pointer' of a Carrier"):
            _ = owner.pointer
    with pytest.raises(GuardError, match="cannot be changed"):
        library.Carrier().pointer = 1


def test_closing_is_what_hides_it(library):
    assert library.Carrier().pointer() == 4096


@pytest.mark.parametrize("listed", [("shown", "nothing")])
@pytest.mark.usefixtures("library")
def test_listed_name_that_the_class_lacks_is_our_fault(pure, listed):
    with pytest.raises(InternalError, match="STO-P001"):
        close(pure, *listed)


@pytest.mark.parametrize("dotted", ["carrier_library.Nothing", "math.pi"])
@pytest.mark.usefixtures("library")
def test_what_is_no_class_is_our_fault(dotted):
    with pytest.raises(InternalError, match="STO-P001"):
        find_class(dotted)


def test_private_names_are_left_to_the_guards():
    assert hidden_names(Carrier, ()) == ["pointer", "shown"]


def test_instances_of_unknown_classes_take_no_assignment():
    assert not may_assign({}, Carrier.__mro__, "shown")
