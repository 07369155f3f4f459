from __future__ import annotations

import builtins
import copy

import pytest

import stoilo
from stoilo.client.results import SystemError as TaskSystemError
from stoilo.client.results import TimedOut, UserError, user_error

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
