from dataclasses import dataclass

RED = 3


class Names:
    red = "r"


@dataclass
class Point:
    x: int
    y: int


def kind(value):
    match value:
        case 0 | 1:
            return "bit"
        case Names.red:
            return "dotted"
        case str() as text if len(text) > 3:
            return f"long {text}"
        case str(text):
            return f"short {text}"
        case Point(0, y):
            return f"on axis {y}"
        case Point(x=x, y=y) if x == y:
            return f"diagonal {x}"
        case [first, *rest]:
            return [first, rest]
        case {"op": "add", "args": [a, b], **more}:
            return [a + b, more]
        case None | True:
            return "single"
        case -1.5:
            return "negative"
        case _:
            return "other"


def run(kwargs):
    values = [1, "r", "word", "ab", Point(0, 3), Point(2, 2), Point(1, 2), [1, 2, 3], (4,), {"op": "add", "args": [1, 2], "z": 0}, True, -1.5, {}]
    return [kind(value) for value in values]


# abuse: STO-G101
def run(kwargs):
    match run:
        case object(__globals__=found):
            return "REACHED" if found else "no"
