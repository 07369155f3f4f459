# /// stoilo-case
# idea = "annotations"
# run = "task"
# level = "pure"
# ///
from __future__ import annotations

from typing import (
    Any,
    Callable,
    Generic,
    Literal,
    NamedTuple,
    Optional,
    Protocol,
    TypeVar,
)

T = TypeVar("T")
Mode = Literal["fast", "slow"]


class Pair(NamedTuple):
    left: int
    right: float = 0.5


class Stack(Generic[T]):
    def __init__(self) -> None:
        self.items: list[T] = []

    def push(self, item: T) -> Stack[T]:
        self.items.append(item)
        return self

    def pop(self) -> T:
        return self.items.pop()


class Shape(Protocol):
    def area(self) -> float: ...


class Square:
    side: float

    def __init__(self, side: float):
        self.side = side

    def area(self) -> float:
        return self.side**2


LIMIT: int = 3
unset: str


def total(shapes: list[Shape], key: Optional[Callable[[Any], float]] = None) -> float:
    result: float = 0.0
    local: "SomethingUndefined"
    for shape in shapes:
        result += shape.area()
    return result


def run(kwargs: dict[str, Any]) -> list[Any]:
    stack: Stack[int] = Stack()
    pair = Pair(3)
    return [
        stack.push(1).push(2).pop(),
        total([Square(2), Square(3)]),
        pair.left + pair.right,
        tuple(pair._replace(left=9)),
        pair._asdict(),
        LIMIT,
    ]
