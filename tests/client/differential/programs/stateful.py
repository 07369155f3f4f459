"""Functions whose answer depends on state that has to travel: the pickling topics."""

import abc
import collections
import contextlib
import dataclasses
import enum
import functools
import math
import typing

import own_library

LIMIT = 5
TABLE = {str(i): i * i for i in range(200)}
HISTORY = [1, 2, 3]
NAME = "outer"
total = 100


def make_adder(n):
    def add(kw):
        return kw["x"] + n

    return add


def make_pair():
    count = 10

    def bump(by=1):
        nonlocal count
        count += by
        return count

    def read(kw):
        return [bump(), bump(kw["by"]), count]

    return bump, read


BUMP, READ = make_pair()
BUMP()


def make_counter(start):
    n = start

    def count():
        nonlocal n
        n += 1
        return n

    return count


COUNTERS = [make_counter(0), make_counter(100)]
COUNTERS[0]()


def two_counters(kw):
    return [counter() for counter in COUNTERS for _ in range(kw["times"])]


def assigns_global(kw):
    global total
    total += kw["x"]
    return read_total()


def read_total():
    return total


def uses_table(kw):
    return sum(TABLE[key] for key in kw["keys"])


def mutates_list(kw):
    HISTORY.append(kw["x"])
    return list(HISTORY)


def same_name_elsewhere(kw):
    # own_library.SCALE and our own SCALE differ
    return [SCALE * kw["x"], own_library.scaled(kw["x"])]


SCALE = 1000


def default_state(kw, memory=[1], *, factor=LIMIT, table=TABLE):
    memory.append(kw["x"])
    return [memory, factor, len(table)]


class Account:
    bank = "first"
    opened = 0

    def __init__(self, owner, balance=0):
        self.owner = owner
        self._balance = balance
        self.__secret = balance * 2
        Account.opened += 1

    def deposit(self, amount):
        self._balance += amount
        return self

    @property
    def balance(self):
        return self._balance

    @classmethod
    def named(cls, owner):
        return cls(owner, 1)

    @staticmethod
    def fee(amount):
        return amount // 10

    def secret(self):
        return self.__secret

    def __eq__(self, other):
        return isinstance(other, Account) and self.owner == other.owner

    def __hash__(self):
        return hash(self.owner)

    def __repr__(self):
        return f"Account({self.owner!r}, {self._balance})"


class Savings(Account):
    rate = 0.5

    def __init__(self, owner, balance=0, *, years=1):
        super().__init__(owner, balance)
        self.years = years

    def grow(self):
        return self.deposit(int(self.balance * self.rate) * self.years)


SAVED = Savings("eve", 40, years=2)
Account.bank = "second"


def uses_instance(kw):
    return [
        SAVED.grow().balance,
        SAVED.secret(),
        SAVED.bank,
        Account.fee(99),
        Account.named("x").balance,
    ]


def takes_instance(kw):
    account = kw["account"]
    return [
        account.deposit(5).balance,
        repr(account),
        account == Account("bob"),
        type(account).__name__,
    ]


def takes_nested(kw):
    return [
        [a.balance for a in kw["many"]],
        kw["deep"]["a"][0].owner,
        len({*kw["many"]}),
    ]


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a):
        self.a = a

    def get(self):
        return [self.a, hasattr(self, "b")]


class Stack(list):
    def top(self):
        return self[-1]


def labelled(items, label):
    stack = Stack(items)
    stack.label = label
    return stack


class Ranked(dict):
    def best(self):
        return max(self, key=self.get)


def takes_containers(kw):
    return [kw["stack"].top(), len(kw["stack"]), kw["stack"].label, kw["ranked"].best()]


@dataclasses.dataclass
class Config:
    rate: float
    steps: int = 3
    notes: list = dataclasses.field(default_factory=list)

    def total(self):
        return self.rate * self.steps + len(self.notes)


@dataclasses.dataclass(frozen=True)
class Fixed:
    x: int


def takes_dataclass(kw):
    return [
        kw["config"].total(),
        dataclasses.asdict(kw["config"]),
        kw["fixed"].x,
        kw["fixed"] == Fixed(4),
    ]


Pair = collections.namedtuple("Pair", ["left", "right"])


def takes_pair(kw):
    return [
        kw["pair"].left + kw["pair"].right,
        tuple(kw["pair"]),
        isinstance(kw["pair"], Pair),
    ]


def integrate(kw):
    f, a, b, n = kw["f"], kw["a"], kw["b"], kw["n"]
    h = (b - a) / n
    return h * (0.5 * (f(a) + f(b)) + sum(f(a + i * h) for i in range(1, n)))


def applies(kw):
    return [f(kw["x"]) for f in kw["functions"]]


def makes_instances(kw):
    return [cls(3).__class__.__name__ for cls in kw["classes"]] + [
        kw["classes"][0](7).get()
    ]


class Base(abc.ABC):
    @abc.abstractmethod
    def value(self): ...

    def doubled(self):
        return 2 * self.value()


def make_local_class(k):
    class Local(Base):
        factor = 2

        def __init__(self, x):
            self.x = x

        def value(self):
            return self.x * self.factor + k

        def __call__(self, kw):
            return [self.doubled(), kw["y"] + k]

    return Local


LOCAL = make_local_class(1000)(5)


def scale_by(factor):
    def decorate(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            return factor * function(*args, **kwargs)

        return wrapper

    return decorate


@scale_by(10)
@scale_by(2)
def decorated_helper(x, y=1):
    return x + y


def uses_decorated(kw):
    return [decorated_helper(kw["x"]), decorated_helper(kw["x"], y=5)]


@scale_by(3)
def decorated_entry(kw):
    return kw["x"]


@contextlib.contextmanager
def listed(items, name=NAME):
    items.append(f"enter {name}")
    yield items
    items.append(f"leave {name}")


def uses_context(kw):
    items = []
    with listed(items) as inside:
        inside.append(kw["x"])
    return items


def partial_target(a, b, *, c=0, d=0):
    return [a, b, c, d]


def uses_partial(kw):
    return [kw["p"](2), kw["p"](3, c=9), FIXED_PARTIAL(5)]


FIXED_PARTIAL = functools.partial(partial_target, 1, d=TABLE["3"])


class Tree:
    def __init__(self, value, *children):
        self.value = value
        self.children = list(children)

    def __iter__(self):
        yield self.value
        for child in self.children:
            yield from child


def walks_tree(kw):
    return list(kw["tree"])


class Handlers:
    def __init__(self):
        self.on_add = make_counter(7)
        self.on_sum = sum
        self.kind = Slotted

    def fire(self):
        return [self.on_add(), self.on_add(), self.on_sum([1, 2]), self.kind(1).get()]


def state_holds_functions(kw):
    return kw["handlers"].fire()


class Meter:
    readings = [1, 2]

    def log(self, x):
        self.readings.append(x)
        return list(self.readings)


Meter.readings.append(3)
Meter.unit = "m"
Meter.describe = lambda self: f"{self.readings[-1]}{self.unit}"


def patched_class(kw):
    return [Meter().log(kw["x"]), Meter().describe()]


def late_binding(kw):
    return helper_defined_below(kw["x"])


def helper_defined_below(x):
    return x + LIMIT


LOOP_LAMBDAS = [lambda kw, i=i: kw["x"] * i for i in range(4)]


def cell_of_loop():
    found = []
    for i in range(3):
        found.append(lambda kw: kw["x"] + i)
    return found


SELF_REFERENCE = {}


def looks_itself_up(kw):
    return 1 if kw["n"] <= 1 else kw["n"] * SELF_REFERENCE["again"]({"n": kw["n"] - 1})


SELF_REFERENCE["again"] = looks_itself_up


class Model:
    def __init__(self, weights):
        self.weights = weights

    def predict(self, kw):
        return sum(w * x for w, x in zip(self.weights, kw["x"]))


CASES = [
    ("uses_decorated", uses_decorated, {"x": 3}),
    ("decorated_entry", decorated_entry, {"x": 3}),
    ("uses_context", uses_context, {"x": 3}),
    ("late_binding", late_binding, {"x": 3}),
    ("self_reference", looks_itself_up, {"n": 6}),
]
STATEFUL = [
    ("closure", make_adder(40), {"x": 2}),
    ("separate_cells", two_counters, {"times": 2}),
    ("assigned_global", assigns_global, {"x": 7}),
    ("large_global", uses_table, {"keys": ["3", "14", "150"]}),
    ("mutated_global", mutates_list, {"x": 4}),
    ("name_clash", same_name_elsewhere, {"x": 2}),
    ("own_module_state", lambda kw: [own_library.count(), own_library.count()], {}),
    ("defaults", default_state, {"x": 2}),
    ("global_instance", uses_instance, {}),
    ("argument_instance", takes_instance, {"account": Account("bob", 10)}),
    ("inherited_instance", takes_instance, {"account": Savings("ann", 10)}),
    (
        "nested_instances",
        takes_nested,
        {"many": [Account("a", 1), Savings("b", 2)], "deep": {"a": [Account("c")]}},
    ),
    ("slots", lambda kw: kw["s"].get(), {"s": Slotted([1])}),
    (
        "builtin_subclasses",
        takes_containers,
        {"stack": labelled([1, 2], "top"), "ranked": Ranked(a=1, b=5)},
    ),
    (
        "dataclass_instances",
        takes_dataclass,
        {"config": Config(0.5, notes=["n"]), "fixed": Fixed(4)},
    ),
    ("namedtuple_instance", takes_pair, {"pair": Pair(1, 2)}),
    (
        "function_argument",
        integrate,
        {"f": lambda x: x * math.sin(x), "a": 0.0, "b": math.pi, "n": 50},
    ),
    (
        "function_arguments",
        applies,
        {
            "x": 2,
            "functions": [abs, math.sqrt, make_counter, str, lambda x: -x][:2]
            + [lambda x: -x],
        },
    ),
    (
        "closure_argument",
        applies,
        {"x": 4, "functions": [functools.partial(pow, 2), SAVED.fee]},
    ),
    ("class_arguments", makes_instances, {"classes": [Slotted, Tree]}),
    ("local_class_instance", LOCAL, {"y": 1}),
    ("partials", uses_partial, {"p": functools.partial(partial_target, 1, d=4)}),
    ("tree", walks_tree, {"tree": Tree(1, Tree(2, Tree(3)), Tree(4))}),
    ("functions_in_state", state_holds_functions, {"handlers": Handlers()}),
    ("patched_class", patched_class, {"x": 9}),
    ("loop_default", LOOP_LAMBDAS[3], {"x": 5}),
    ("bound_method", Model([1.5, -2.0, 0.25]).predict, {"x": [4, 1, 8]}),
    ("loop_cell", cell_of_loop()[0], {"x": 5}),
]


class Greeter:
    word = "hello"

    def greet(self, kw):
        return f"{self.word} {kw['who']}"


class Loud(Greeter):
    def greet(self, kw):
        return super().greet(kw).upper()


class Coordinates(typing.NamedTuple):
    x: int
    y: int = 2

    def norm(self):
        return self.x + self.y


@dataclasses.dataclass(slots=True, order=True)
class Slim:
    weight: float
    name: str = "slim"


T = typing.TypeVar("T")


class Box(typing.Generic[T]):
    def __init__(self, item: T) -> None:
        self.item = item

    def get(self) -> T:
        return self.item


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


BY_LEVEL = {Level.LOW: "low", Level.HIGH: "high"}


def unbound_with_super(kw):
    return UNBOUND(kw["loud"], kw)


UNBOUND = Loud.greet


def typed_classes(kw):
    return [
        kw["at"].norm(),
        kw["slim"].name,
        kw["slim"] < Slim(9.0),
        kw["box"].get(),
        BY_LEVEL[Level(kw["n"])],
    ]


def named_after_the_module(kw):
    return __name__ == "stateful"


STATEFUL += [
    ("unbound_with_super", unbound_with_super, {"loud": Loud(), "who": "eve"}),
    (
        "typed_classes",
        typed_classes,
        {"at": Coordinates(1), "slim": Slim(3.0), "box": Box([1]), "n": 2},
    ),
    ("module_name", named_after_the_module, {}),
]

# cloudpickle copies a cell once a function, so that functions which share one part company
# on the other side. Captured source keeps it shared, as here: name, function, kwargs, value.
KNOWN = [
    ("shared_cell", READ, {"by": 5}, [12, 17, 17]),
]
