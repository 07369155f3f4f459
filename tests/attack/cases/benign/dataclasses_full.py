# /// stoilo-case
# idea = "dataclasses full"
# run = "task"
# level = "pure"
# ///
from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import ClassVar, Optional


@dataclass(order=True)
class Item:
    weight: float
    value: float = 1.0
    tags: list[str] = field(default_factory=list, compare=False)
    made: ClassVar[int] = 0
    _hidden: Optional[int] = field(default=None, repr=False)

    def __post_init__(self):
        Item.made += 1
        if self.weight < 0:
            raise ValueError("weight")

    def ratio(self) -> float:
        return self.value / self.weight


@dataclass(frozen=True, slots=True)
class Key:
    name: str
    index: int = 0


@dataclass
class Special(Item):
    extra: dict = field(default_factory=dict)


def run(kwargs):
    items = [Item(3, 9), Item(1, 2, ["a"]), Special(2.0, extra={"k": 1})]
    key = Key("n")
    outcome = []
    try:
        key.name = "m"
    except dataclasses.FrozenInstanceError as error:
        outcome.append(str(error))
    try:
        Item(-1)
    except ValueError as error:
        outcome.append(error.args)
    return [
        repr(items),
        [item.ratio() for item in items],
        repr(sorted(items[:2])),
        dataclasses.asdict(items[1]),
        dataclasses.replace(items[0], value=4).value,
        {key: 1}[Key("n")],
        Item.made,
        outcome,
        items[0] == Item(3, 9),
        [f.name for f in dataclasses.fields(Special)],
    ]
