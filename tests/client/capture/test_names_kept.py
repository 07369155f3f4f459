"""`__name__` in a task is what it is at home, and messages say the same names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import stoilo
from stoilo.testing.service import FakeTaskService
from tests.support.jailed import JailAnswerer


class Wrong(Exception):
    """Raised below under another name."""


def helper() -> str:
    return f"{helper.__name__} of {__name__}"


def _private() -> str:
    return _private.__name__


other, Failure = helper, Wrong


def renamed(_kwargs: dict[str, Any]) -> list[str]:
    return [other.__name__, other(), Failure.__name__, Failure.__qualname__]


def private(_kwargs: dict[str, Any]) -> list[str]:
    return [private.__name__, _private.__name__, _private()]


def of_a_module(_kwargs: dict[str, Any]) -> str:
    return __name__


def raising(_kwargs: dict[str, Any]) -> None:
    raise Failure("as it is called at home")


def run(with_fake: Any, in_jail: JailAnswerer, function: Callable[..., Any]) -> Any:
    async def body(conn: stoilo.Connection, _service: FakeTaskService) -> Any:
        return await conn.create_task(function).result()

    return with_fake(body, FakeTaskService(in_jail))


@pytest.mark.parametrize("function", [renamed, private, of_a_module])
def test_names_in_the_task_are_those_at_home(
    with_fake: Any, in_jail: JailAnswerer, function: Callable[..., Any]
) -> None:
    assert run(with_fake, in_jail, function) == function({})


def test_exception_raised_under_an_alias_is_named_as_its_class(
    with_fake: Any, in_jail: JailAnswerer
) -> None:
    found = run(with_fake, in_jail, raising)
    assert isinstance(found, stoilo.UserError)
    assert found.exception_type == "Wrong"


def test_second_of_two_functions_of_one_name_goes_by_its_alias(
    with_fake: Any, in_jail: JailAnswerer
) -> None:
    """The limit of the above: one module has one `helper`."""

    def make() -> Callable[[], int]:
        def helper() -> int:
            return 2

        return helper

    second = make()

    def both(_kwargs: dict[str, Any]) -> list[str]:
        return [other.__name__, second.__name__]

    assert run(with_fake, in_jail, both) == ["helper", "second"]
    assert both({}) == ["helper", "helper"]
