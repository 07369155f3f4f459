from typing import Any, Callable, Generic, Optional, Protocol, TypedDict, TypeVar, Union, cast

T = TypeVar("T")
Number = Union[int, float]


class Stack(Generic[T]):
    def __init__(self) -> None:
        self._items: list[T] = []

    def push(self, item: T) -> "Stack[T]":
        self._items.append(item)
        return self


class Movie(TypedDict, total=False):
    name: str
    year: int


class Sized(Protocol):
    def size(self) -> int: ...


def apply(f: Callable[[int], Optional[Any]], n: int | None = 3) -> Number:
    return cast(int, f(n))


def run(kwargs):
    stack: Stack[int] = Stack[int]().push(1).push(2)
    movie: Movie = {"name": "x"}
    return [stack._items, movie, apply(lambda n: n + 1), list[int]([1]), isinstance(3, int | str)]


# abuse: STO-P040
from typing import get_type_hints


class A:
    x: "'REACHED'" = 0


def run(kwargs):
    return get_type_hints(A)["x"].__forward_arg__ if 0 else "REACHED"
