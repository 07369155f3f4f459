"""Functions in the shape of the standard library's own test topics."""

import bisect
import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import heapq
import itertools
import json
import math
import random
import re
import statistics
import string
import textwrap
from collections import OrderedDict, defaultdict, deque
from math import gcd as greatest
from statistics import mean, pstdev as spread

import own_library
from own_library import Square, smooth as soften

PATTERN = re.compile(r"(?P<key>\w+)=(?P<value>[^;]*);?", re.IGNORECASE)
EPOCH = datetime.date(2020, 2, 29)
STEP = datetime.timedelta(days=1, hours=2)
THIRD = fractions.Fraction(1, 3)
PRICE = decimal.Decimal("19.99")
ORDER = OrderedDict([("b", 1), ("a", 2)])
QUEUE = deque([1, 2, 3], maxlen=3)
Point = collections.namedtuple("Point", "x y", defaults=[0])
ORIGIN = Point(3)


class Color(enum.Enum):
    RED = 1
    GREEN = 2

    def brighter(self):
        return f"light {self.name.lower()}"


FAVOURITE = Color.GREEN
OPERATIONS = {"add": lambda a, b: a + b, "gcd": greatest, "max": max, "root": math.sqrt}


def regex(kw):
    return [m.groupdict() for m in PATTERN.finditer(kw["text"])] + [
        re.sub(r"\d+", "#", kw["text"])
    ]


def dates(kw):
    day = EPOCH + datetime.timedelta(days=kw["days"])
    return [day.isoformat(), (STEP * 3).total_seconds(), day.weekday()]


def exact(kw):
    return [
        str(THIRD + fractions.Fraction(kw["n"], 6)),
        str(PRICE * kw["n"]),
        float(THIRD),
    ]


def heaps(kw):
    heap = list(kw["values"])
    heapq.heapify(heap)
    heapq.heappush(heap, -1)
    return [
        heapq.heappop(heap),
        heapq.nsmallest(2, heap),
        bisect.bisect_left(sorted(heap), 3),
    ]


def statistics_topics(kw):
    return [
        mean(kw["v"]),
        spread(kw["v"]),
        statistics.median(kw["v"]),
        statistics.fmean(kw["v"]),
    ]


def containers(kw):
    counts = collections.Counter(kw["text"])
    groups = defaultdict(list)
    for char in kw["text"]:
        groups[char.isalpha()].append(char)
    window = deque(QUEUE, maxlen=2)
    window.append(9)
    return [counts.most_common(2), dict(groups), list(window), list(ORDER.items())]


def named_tuples(kw):
    p = Point(kw["x"], 4)
    return [
        p.x + p.y + ORIGIN.x + ORIGIN.y,
        list(p._replace(y=1)),
        p == Point(kw["x"], 4),
    ]


def enums(kw):
    return [
        FAVOURITE.name,
        Color(kw["n"]).brighter(),
        [c.value for c in Color],
        FAVOURITE is Color.GREEN,
    ]


def dispatch(kw):
    return [OPERATIONS[name](*args) for name, args in kw["calls"]]


def iterators(kw):
    return [
        list(itertools.islice(itertools.count(kw["n"], 3), 4)),
        list(itertools.permutations("abc", 2))[:3],
        list(itertools.accumulate([1, 2, 3], initial=10)),
        functools.reduce(lambda a, b: a * b, range(1, 6)),
    ]


def serialised(kw):
    text = json.dumps(kw["data"], sort_keys=True, indent=1)
    return [text, json.loads(text) == kw["data"]]


def seeded_random(kw):
    rng = random.Random(kw["seed"])
    values = list(range(10))
    rng.shuffle(values)
    return [values, rng.random(), rng.gauss(0, 1), rng.choice("abc")]


def texts(kw):
    template = string.Template("$who likes $what")
    return [
        template.substitute(who="tim", what=kw["what"]),
        textwrap.fill("word " * 8, 15),
        string.ascii_lowercase[:5],
    ]


def own_modules(kw):
    return [
        own_library.scaled(kw["x"]),
        soften([1, 2, 3, 4]),
        own_library.hypotenuse(3, 4),
        own_library.m.floor(2.5),
    ]


def own_classes(kw):
    return [Square(kw["x"]).describe(), isinstance(Square(1), own_library.Shape)]


@functools.lru_cache(maxsize=64)
def catalan(n):
    return 1 if n == 0 else sum(catalan(i) * catalan(n - 1 - i) for i in range(n))


def cached(kw):
    return [catalan(n) for n in range(kw["n"])]


def annotated(kw: dict[str, "Unknown"]) -> "Anything":
    values: list[float] = [float(v) for v in kw["v"]]
    total: float
    total = math.fsum(values)
    return total


@dataclasses.dataclass(order=True)
class Body:
    mass: float
    name: str = dataclasses.field(default="", compare=False)
    tags: list = dataclasses.field(default_factory=list)
    units: dataclasses.InitVar[int] = 1

    def __post_init__(self, units):
        self.mass *= units


def dataclass_topics(kw):
    a, b = Body(2, "a", units=3), Body(kw["mass"], tags=["x"])
    return [
        a > b,
        dataclasses.asdict(b),
        dataclasses.replace(b, mass=1, units=1).mass,
        repr(b),
    ]


CASES = [
    ("regex", regex, {"text": "a=1;B=two;c=33"}),
    ("dates", dates, {"days": 366}),
    ("exact", exact, {"n": 4}),
    ("heaps", heaps, {"values": [5, 3, 8, 1]}),
    ("statistics", statistics_topics, {"v": [1.0, 2.5, 4.0]}),
    ("containers", containers, {"text": "a1bb22"}),
    ("named_tuples", named_tuples, {"x": 2}),
    ("enums", enums, {"n": 1}),
    (
        "dispatch",
        dispatch,
        {
            "calls": [
                ("add", (1, 2)),
                ("gcd", (12, 18)),
                ("max", (3, 9)),
                ("root", (16,)),
            ]
        },
    ),
    ("iterators", iterators, {"n": 5}),
    ("serialised", serialised, {"data": {"b": [1, 2.5, None], "a": "x"}}),
    ("seeded_random", seeded_random, {"seed": 7}),
    ("texts", texts, {"what": "tea"}),
    ("own_modules", own_modules, {"x": 7}),
    ("own_classes", own_classes, {"x": 3}),
    ("lru_cache", cached, {"n": 10}),
    ("annotated", annotated, {"v": [0.1] * 10}),
    ("dataclasses", dataclass_topics, {"mass": 4}),
]
STATEFUL = []
