# /// stoilo-case
# idea = "names that own classes override in library classes"
# wider = true
# ///
import calendar
import csv
import io
import json
import logging
import pprint
import queue
import random
import string
import textwrap
from collections import (
    ChainMap,
    Counter,
    OrderedDict,
    UserDict,
    UserList,
    UserString,
    defaultdict,
    deque,
)
from collections.abc import Iterator, Mapping, MutableMapping, Sequence, Set
from contextlib import AbstractContextManager, ContextDecorator
from datetime import date, datetime, timedelta, tzinfo
from decimal import Decimal
from enum import Enum, Flag, IntEnum, StrEnum, auto
from fractions import Fraction
from typing import Generic, NamedTuple, Protocol, TypedDict, TypeVar

T = TypeVar("T")


class Points(json.JSONEncoder):
    item_separator = ";"

    def default(self, o):
        return (
            {"re": o.real, "im": o.imag}
            if isinstance(o, complex)
            else super().default(o)
        )


class Percent(string.Template):
    delimiter = "%"
    idpattern = "[a-z]+"


class Steps(random.Random):
    count = 0

    def random(self):
        self.count += 1
        return (self.count * 0.37) % 1.0

    def seed(self, a=None, version=2):
        super().seed(5 if a is None else a, version)


class Heap(queue.Queue):
    def _init(self, maxsize):
        self.queue = []

    def _qsize(self):
        return len(self.queue)

    def _put(self, item):
        self.queue.append(item)
        self.queue.sort()

    def _get(self):
        return self.queue.pop(0)


class Bars(csv.Dialect):
    delimiter = "|"
    quotechar = "'"
    lineterminator = "\n"
    quoting = csv.QUOTE_MINIMAL


class Week(calendar.TextCalendar):
    def formatday(self, day, weekday, width):
        return f"{day or '-':>{width}}"


class Short(pprint.PrettyPrinter):
    def format(self, object, context, maxlevels, level):
        if isinstance(object, float):
            return f"{object:.2f}", True, False
        return repr(object), True, False


class Shout(logging.Formatter):
    def format(self, record):
        return super().format(record).upper()


class Keep(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(
            f"{record.levelname}:{self.format(record)}:{record.getMessage()}"
        )


class Lower(UserDict):
    def get(self, key, default=None):
        return super().get(key.lower(), default)

    def __setitem__(self, key, item):
        super().__setitem__(key.lower(), item)


class Sorted(UserList):
    def append(self, item):
        super().append(item)
        self.data.sort()


class Word(UserString):
    def upper(self):
        return f"<{super().upper()}>"


class Recent(OrderedDict):
    def get(self, key, default=None):
        if key in self:
            self.move_to_end(key)
        return super().get(key, default)


class Tree(defaultdict):
    def __missing__(self, key):
        self[key] = Tree()
        return self[key]


class Votes(Counter):
    def most_common(self, n=None):
        return sorted(self.items())[:n]


class Scope(ChainMap):
    def new_child(self, m=None):
        return Scope({} if m is None else m, *self.maps)


class Ring(deque):
    def append(self, item):
        super().append(item * 2)


class Bits(Set):
    def __init__(self, items):
        self.items = sorted({item % 8 for item in items})

    @classmethod
    def _from_iterable(cls, items):
        return cls(items)

    def __contains__(self, item):
        return item in self.items

    def __iter__(self):
        return iter(self.items)

    def __len__(self):
        return len(self.items)


class Squares(Sequence):
    def __len__(self):
        return 5

    def __getitem__(self, place):
        if place >= 5:
            raise IndexError(place)
        return place * place

    def index(self, value):
        return int(value**0.5)


class View(Mapping):
    name = "view"
    size = 2

    def __getitem__(self, key):
        return {"a": 1, "b": 2}[key]

    def __iter__(self):
        return iter("ab")

    def __len__(self):
        return self.size


class Notes(MutableMapping):
    def __init__(self):
        self.content = {}

    def __getitem__(self, key):
        return self.content[key]

    def __setitem__(self, key, value):
        self.content[key] = value

    def __delitem__(self, key):
        del self.content[key]

    def __iter__(self):
        return iter(self.content)

    def __len__(self):
        return len(self.content)

    def update(self, *values, **more):
        super().update(*values, **more)
        self.content["updated"] = True


class Down(Iterator):
    def __init__(self, start):
        self.now = start

    def __next__(self):
        self.now -= 1
        if self.now < 0:
            raise StopIteration
        return self.now


class Color(Enum):
    @staticmethod
    def _generate_next_value_(name, start, count, last_values):
        return name.lower()

    RED = auto()
    BLUE = auto()

    @classmethod
    def _missing_(cls, value):
        return cls.RED if value == "crimson" else None

    @property
    def label(self):
        return self.name.title()


class Rank(IntEnum):
    LOW = 1
    HIGH = 2

    def next(self):
        return Rank.HIGH


class Mode(Flag):
    R = auto()
    W = auto()
    index = R | W


class Suffix(StrEnum):
    TXT = ".txt"

    def lower(self):
        return "own"


class Failed(ValueError):
    code = 7

    def __init__(self, message, args=()):
        super().__init__(message)
        self.message, self.given = message, args

    def __str__(self):
        return f"failed: {self.message}"


class Shared(Fraction):
    def limit_denominator(self, max_denominator=10):
        return super().limit_denominator(max_denominator)


class Money(Decimal):
    def quantize(self, exp):
        return Money(super().quantize(exp))


class Offset(tzinfo):
    def utcoffset(self, dt):
        return timedelta(hours=2)

    def dst(self, dt):
        return timedelta(0)

    def tzname(self, dt):
        return "two"


class Day(date):
    def isoformat(self):
        return "day " + super().isoformat()


class Timed(AbstractContextManager, ContextDecorator):
    entered = 0

    def __enter__(self):
        Timed.entered += 1
        return self

    def __exit__(self, *details):
        return None


class Text(io.StringIO):
    def write(self, text):
        return super().write(text.upper())


class Narrow(textwrap.TextWrapper):
    def wrap(self, text):
        return [line + "." for line in super().wrap(text)]


class Stack(Generic[T]):
    def __init__(self):
        self.items = []

    def push(self, item: T) -> None:
        self.items.append(item)


class Named(Protocol):
    name: str

    def describe(self) -> str: ...


class Row(NamedTuple):
    index: int
    count: int = 0

    def total(self):
        return self.index + self.count


class Options(TypedDict, total=False):
    name: str
    update: bool


@Timed()
def decorated():
    return Timed.entered


def run(kwargs):
    out = io.StringIO()
    csv.writer(out, dialect=Bars).writerow(["a|b", 1])
    heap = Heap()
    for value in (3, 1, 2):
        heap.put(value)
    handler, logger = Keep(), logging.getLogger("own")
    handler.setFormatter(Shout("%(name)s %(message)s"))
    logger.propagate = False
    logger.addHandler(handler)
    logger.warning("n=%d", 3)
    lower, recent, tree, scope = Lower(), Recent(a=1, b=2), Tree(), Scope({"x": 1})
    lower["KEY"] = 1
    recent.get("a")
    tree["a"]["b"]["c"] = 1
    items, ring, notes = Sorted([3, 1]), Ring(), Notes()
    items.append(2)
    ring.append(4)
    notes.update(a=1)
    text, stack = Text(), Stack()
    text.write("abc")
    stack.push(1)
    Color.extra = "assigned later"
    Random = Steps
    failed = Failed("no", (1,))
    return [
        json.dumps([1j, 2], cls=Points),
        Percent("%name, %% of $x").substitute(name="Ada"),
        Random(1).random(),
        Random(2).choice([1, 2, 3]),
        out.getvalue(),
        [heap.get() for _ in range(3)],
        Week().formatweek([(0, 0), (1, 1)], 3),
        Short().pformat(1.23456),
        handler.lines,
        [lower.get("KEY"), list(items), Word("ab").upper(), list(recent)],
        [
            json.dumps(tree),
            Votes("abca").most_common(2),
            dict(scope.new_child({"y": 2})),
        ],
        [
            list(ring),
            sorted(Bits([1, 9, 2]) | Bits([3])),
            Squares().index(9),
            4 in Squares(),
        ],
        [dict(View()), View.name, sorted(notes, key=str), list(Down(3))],
        [Color("crimson").label, Color.BLUE.value, Color.extra, Rank.LOW.next().name],
        [Mode.index.value, Suffix.TXT.lower()],
        [str(failed), failed.code, failed.given, failed.args],
        str(Shared(355, 113).limit_denominator()),
        str(Money("1.2345").quantize(Decimal("0.01"))),
        [
            datetime(2020, 1, 2, tzinfo=Offset()).isoformat(),
            Day(2020, 1, 2).isoformat(),
        ],
        [
            decorated(),
            text.getvalue(),
            Narrow(width=8).fill("one two three"),
            stack.items,
        ],
        [Row(1).total(), dict(Options(name="x", update=True))],
    ]
