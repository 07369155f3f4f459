"""Functions without state: control flow, recursion, lambdas, comprehensions."""

import functools
import itertools
import math
import operator


def sum_kwargs(kw):
    return kw["a"] + kw["b"]


def factorial(kw):
    def inner(n):
        return 1 if n < 2 else n * inner(n - 1)

    return inner(kw["n"])


def is_even(n):
    return True if n == 0 else is_odd(n - 1)


def is_odd(n):
    return False if n == 0 else is_even(n - 1)


def parity(kw):
    return [is_even(n) for n in kw["values"]]


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def call_fib(kw):
    return fib(kw["n"])


def sieve(kw):
    limit = kw["limit"]
    marks = [True] * (limit + 1)
    for n in range(2, math.isqrt(limit) + 1):
        if marks[n]:
            marks[n * n :: n] = [False] * len(marks[n * n :: n])
    return [n for n in range(2, limit + 1) if marks[n]]


def loops(kw):
    total = 0
    for i in range(kw["n"]):
        if i % 7 == 3:
            continue
        if i > 40:
            break
        total += i
    else:
        total = -total
    while total > 100:
        total //= 2
    else:
        total += 1
    return total


def comprehensions(kw):
    n = kw["n"]
    return {
        "list": [x * y for x in range(n) for y in range(x) if (x + y) % 2],
        "set": {x % 3 for x in range(n)},
        "dict": {x: [y for y in range(x)] for x in range(4)},
        "gen": sum(x for x in range(n)),
        "walrus": [last := x for x in range(n)] + [last],
    }


def unpacking(kw):
    first, *middle, last = kw["values"]
    (a, b), c = (first, last), middle
    d = {**{"x": 1}, **{"y": 2}}
    return [a, b, *c, *d.items()]


def matching(kw):
    found = []
    for item in kw["items"]:
        match item:
            case {"kind": "point", "at": [x, y], **rest}:
                found.append(("point", x, y, sorted(rest)))
            case [first, *others] if len(others) > 1:
                found.append(("list", first, others))
            case int(n) | float(n):
                found.append(("number", n))
            case str() as text:
                found.append(("text", text))
            case None:
                found.append("none")
            case _:
                found.append("other")
    return found


def exceptions(kw):
    seen = []
    for value in kw["values"]:
        try:
            seen.append(10 // value)
        except ZeroDivisionError as error:
            seen.append(str(error))
        except TypeError:
            seen.append("type")
        else:
            seen.append("fine")
        finally:
            seen.append("end")
    return seen


def raises(kw):
    raise ValueError(f"bad {kw['x']}")


def generator_helper(n):
    for i in range(n):
        got = yield i * i
        if got:
            yield from [got] * 2


def generators(kw):
    running = generator_helper(kw["n"])
    head = [next(running), running.send("ping")]
    return head + list(running)


def fstrings(kw):
    x, name, width = kw["x"], kw["name"], 12
    return [
        f"{x!r}",
        f"{name:>{width}}|{x:08.3f}",
        f"{name=}",
        f"{{literal}} {name.upper()!s:^10}",
        f"{kw['name']!r} {'yes' if x else 'no'}",
        "tab\tnew\nline \\ quote ' \" é",
    ]


def higher_order(kw):
    compose = lambda *fs: functools.reduce(lambda f, g: lambda x: g(f(x)), fs)
    pipeline = compose(lambda x: x + 1, lambda x: x * 2, str)
    return [pipeline(v) for v in kw["values"]]


def varied_arguments(a, b=2, /, c=3, *args, d, e=5, **rest):
    return [a, b, c, list(args), d, e, sorted(rest.items())]


def argument_kinds(kw):
    return [
        varied_arguments(1, d=4),
        varied_arguments(1, 2, 3, 4, 5, d=6, z=7),
        varied_arguments(*kw["args"], **kw["more"]),
    ]


def sorting(kw):
    rows = [tuple(row) for row in kw["rows"]]
    by_key = sorted(rows, key=operator.itemgetter(1, 0), reverse=True)
    groups = itertools.groupby(sorted(rows, key=lambda r: r[1]), key=lambda r: r[1])
    return [
        by_key,
        [(key, len(list(group))) for key, group in groups],
        max(rows, key=lambda r: -r[0]),
    ]


def nested_scopes(kw):
    x = kw["x"]

    def outer():
        nonlocal x
        x += 1

        def inner():
            nonlocal x
            x *= 2
            return x

        return inner

    step = outer()
    return [step(), x, [(lambda y=y: y + x)() for y in range(3)]]


def context_managers(kw):
    trace = []

    class Step:
        def __init__(self, name):
            self.name = name

        def __enter__(self):
            trace.append("in " + self.name)
            return self

        def __exit__(self, kind, value, tb):
            trace.append(f"out {self.name} {kind.__name__ if kind else None}")
            return kind is KeyError

    with Step("a") as a, Step("b"):
        raise KeyError(a.name)
    return trace


def big_numbers(kw):
    return [
        2 ** kw["n"],
        -(3**80),
        pow(7, 100, 13),
        divmod(10**30, 7),
        0.1 + 0.2,
        1e-320,
        complex(1, -2) ** 2,
    ]


def text_work(kw):
    words = kw["text"].lower().split()
    counts = {}
    for word in words:
        counts[word] = counts.get(word, 0) + 1
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:5]


def returns_everything(kw):
    return {
        "none": None,
        "bytes": b"\x00\xff",
        "tuple": (1, (2, [3])),
        "set": {1, 2},
        "frozen": frozenset("ab"),
        "inf": float("inf"),
        "neg_zero": -0.0,
        3: "int key",
        (1, 2): "tuple key",
    }


square, cube = (lambda kw: kw["x"] ** 2), (lambda kw: kw["x"] ** 3)
nested_lambda = lambda kw: (lambda a: lambda b: a * b)(kw["a"])(kw["b"])
conditional_lambda = lambda kw: (
    "big" if kw["x"] > 10 else "small" if kw["x"] > 1 else "tiny"
)
in_table = {"double": lambda kw: kw["x"] * 2, "half": lambda kw: kw["x"] / 2}

CASES = [
    ("sum", sum_kwargs, {"a": 2, "b": 3}),
    ("lambda", lambda kw: kw["a"] - kw["b"], {"a": 2, "b": 3}),
    ("factorial", factorial, {"n": 20}),
    ("mutual_recursion", parity, {"values": [0, 1, 5, 8]}),
    ("module_recursion", call_fib, {"n": 12}),
    ("sieve", sieve, {"limit": 60}),
    ("loops", loops, {"n": 60}),
    ("comprehensions", comprehensions, {"n": 6}),
    ("unpacking", unpacking, {"values": [1, 2, 3, 4]}),
    (
        "matching",
        matching,
        {
            "items": [
                {"kind": "point", "at": [1, 2], "z": 0},
                [1, 2, 3],
                4,
                2.5,
                "t",
                None,
                [1],
            ]
        },
    ),
    ("exceptions", exceptions, {"values": [1, 0, "x"]}),
    ("raises", raises, {"x": 3}),
    ("generators", generators, {"n": 4}),
    ("fstrings", fstrings, {"x": 3.14159, "name": "pi"}),
    ("higher_order", higher_order, {"values": [1, 2]}),
    ("argument_kinds", argument_kinds, {"args": [1, 2, 3], "more": {"d": 4, "q": 1}}),
    ("sorting", sorting, {"rows": [[1, "b"], [2, "a"], [3, "b"]]}),
    ("nested_scopes", nested_scopes, {"x": 3}),
    ("context_managers", context_managers, {}),
    ("big_numbers", big_numbers, {"n": 200}),
    ("text_work", text_work, {"text": "the cat and the hat and the bat"}),
    ("returns_everything", returns_everything, {}),
    ("first_of_two_lambdas", square, {"x": 5}),
    ("second_of_two_lambdas", cube, {"x": 5}),
    ("nested_lambda", nested_lambda, {"a": 6, "b": 7}),
    ("conditional_lambda", conditional_lambda, {"x": 5}),
    ("lambda_in_table", in_table["half"], {"x": 5}),
]
STATEFUL = []
