"""Exchanging members of CPython's types: slots follow, and the types stay immutable."""

import subprocess
import sys

import pytest

from stoilo.core.errors import InternalError
from stoilo.sandbox.language import hardening
from stoilo.sandbox.language.hardening import replace_members

EXCHANGE = """
from stoilo.sandbox.language.hardening import replace_members
store = bytearray.__dict__["__setitem__"]
seen = []
def setitem(self, key, value):
    seen.append(key)
    store(self, key, value)
replace_members(bytearray, {"__setitem__": setitem})
data, slice_of_it = bytearray(3), bytearray(9)[:3]
data[1] = 2
slice_of_it[2] = 2
replace_members(bytearray, {"__setitem__": store})
data[0] = 1
print(seen, list(data))
try:
    bytearray.new = 1
except TypeError:
    print("immutable")
"""


def test_every_instance_gets_the_member_until_it_is_put_back():
    ran = subprocess.run(
        [sys.executable, "-c", EXCHANGE], check=True, capture_output=True, text=True
    )
    assert ran.stdout.splitlines() == ["[1, 2] [1, 2, 0]", "immutable"]


def test_class_that_python_code_defined_is_refused():
    with pytest.raises(InternalError) as caught:
        replace_members(type("Own", (), {}), {})
    assert caught.value.code == "STO-P001"


def test_interpreter_with_another_layout_is_refused(monkeypatch):
    monkeypatch.setattr(hardening, "_FLAGS_OFFSET", object.__basicsize__)
    with pytest.raises(InternalError):
        replace_members(bytearray, {})
