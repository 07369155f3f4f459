from abc import ABC
from dataclasses import dataclass
from random import Random

import pytest

from stoilo.sandbox.language.ownership import find_bad_field, narrow_match_args
from stoilo.sandbox.language.rules import TASK_MODULE


def own(cls):
    """Mark a class as defined by a task's source."""
    cls.__module__ = TASK_MODULE
    return cls


def made(*bases, **fields):
    return own(
        dataclass(init=False)(
            type("C", bases, {"__annotations__": fields, "__doc__": "C."})
        )
    )


@pytest.mark.parametrize("name", ["x", "_private", "format"])
def test_field_that_is_the_tasks_own_stays(name):
    cls = made(**{name: int})
    narrow_match_args(cls)
    assert (find_bad_field(cls), cls.__match_args__) == ("", (name,))


@pytest.mark.parametrize("name", ["gi_frame", "__globals__", "f_back"])
def test_field_that_never_compiles_as_attribute_is_found(name):
    assert find_bad_field(made(**{name: int})) == name


@pytest.mark.parametrize(("base", "name"), [(Random, "_randbelow"), (str, "format")])
def test_field_that_a_library_base_keeps_is_found(base, name):
    assert find_bad_field(made(base, **{name: int})) == name
    assert find_bad_field(made(**{name: int})) == ""


def test_field_of_an_own_base_is_found_behind_a_library_base():
    fields = made(_randbelow=int)
    cls = own(type("R", (Random, fields), {}))
    assert find_bad_field(cls) == "_randbelow"


def test_class_that_may_have_foreign_instances_matches_plain_names_only():
    cls = made(ABC, x=int, format=int, y=int)
    narrow_match_args(cls)
    assert cls.__match_args__ == ("x",)
