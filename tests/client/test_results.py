from __future__ import annotations

import builtins
import copy

import pytest

import stoilo
from stoilo.client.results import SystemError as TaskSystemError
from stoilo.client.results import TimedOut, UserError, as_columns, user_error

NAMES = [
    name
    for name, value in vars(builtins).items()
    if isinstance(value, type) and issubclass(value, BaseException)
]


@pytest.mark.parametrize("name", NAMES)
def test_every_builtin_exception_makes_a_user_error(name: str) -> None:
    error = user_error(name, "text")
    assert isinstance(error, UserError)
    assert error.exception_type == name
    assert str(error).startswith(name)


def test_builtin_exceptions_are_caught_as_themselves() -> None:
    with pytest.raises(KeyError):
        raise user_error("KeyError", "'x'")
    with pytest.raises(OSError, match="gone"):
        raise user_error("FileNotFoundError", "gone")


@pytest.mark.parametrize(
    "name", ["MyError", "SystemExit", "StopIteration", "print", ""]
)
def test_other_names_stay_plain_user_errors(name: str) -> None:
    assert type(user_error(name, "x")) is UserError


def test_both_errors_are_exceptions_but_not_each_other() -> None:
    assert issubclass(UserError, Exception)
    assert issubclass(TaskSystemError, Exception)
    assert not issubclass(TaskSystemError, builtins.SystemError)
    assert stoilo.low_level.SystemError is TaskSystemError


def test_user_errors_can_be_copied() -> None:
    error = copy.copy(user_error("ValueError", "x", "STO-P023", "out"))
    assert isinstance(error, ValueError)
    assert (error.text, error.code, error.output) == ("x", "STO-P023", "out")
    assert str(error) == "ValueError: x [STO-P023]"


def test_a_timeout_says_how_to_go_on() -> None:
    late = TimedOut("abc", 3.0, "running")
    assert late.code == "STO-C060"
    assert "restore_task('abc')" in str(late)


def test_system_errors_show_their_code() -> None:
    assert str(TaskSystemError("STO-R052", "no quorum")) == "no quorum [STO-R052]"


def test_rows_become_columns_and_what_lacks_is_none() -> None:
    assert as_columns([{"a": 1}, {"a": 2, "b": 3}]) == {"a": [1, 2], "b": [None, 3]}
    assert as_columns([1, (2, 3)]) == {"result": [1, (2, 3)]}
    assert as_columns([{"a": 1}, 2]) == {"result": [{"a": 1}, 2]}
    assert as_columns([{1: 1}]) == {"result": [{1: 1}]}
    assert as_columns([]) == {}


def test_errors_have_a_column_of_their_own() -> None:
    wrong = user_error("ValueError", "no")
    assert as_columns([wrong, {"error": 5}]) == {
        "error": [None, 5],
        "error_": [str(wrong), None],
    }
    assert as_columns([wrong]) == {"result": [None], "error": [str(wrong)]}
