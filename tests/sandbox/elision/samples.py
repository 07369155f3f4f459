"""What the explorer tries: constants, objects of each library, names that tempt."""

from __future__ import annotations

CONSTANTS = (
    "0",
    "1",
    "-1",
    "2.5",
    "'a'",
    "b'x'",
    "'{0.x}'",
    "None",
    "(1, 2)",
    "[3, 1]",
)
CONSTANTS += (
    "{'a': 1}",
    "{1, 2}",
    "range(3)",
    "slice(0, 1)",
    "lambda *a, **k: a",
    "str",
)
CONSTANTS += (
    "object()",
    "ValueError('v')",
    "(n for n in 'ab')",
    "int",
    "dict",
    "object",
)
LURES = (
    "__class__",
    "__dict__",
    "__globals__",
    "__subclasses__",
    "__self__",
    "gi_frame",
)
LURES += (
    "__traceback__",
    "tb_frame",
    "f_back",
    "__code__",
    "__closure__",
    "__reduce__",
)
LURES += ("__init__", "__getattribute__", "__mro__", "mro", "__func__", "_x", "format")
LURES += (
    "__module__",
    "__builtins__",
    "__loader__",
    "obj",
    "fget",
    "func",
    "__wrapped__",
)
SPECIAL = ("__add__", "__eq__", "__getitem__", "__enter__", "__exit__", "__iter__")
SPECIAL += ("__call__", "__format__", "__repr__", "__new__", "__init__", "__hash__")


SAMPLES = (
    *("re.match('(a)', 'abc')", "re.compile('a')", "decimal.getcontext()"),
    *("decimal.Decimal('1.5')", "dataclasses.field(default=1)", "random.Random(1)"),
    *("collections.namedtuple('N', 'a b')(1, 2)", "functools.partial(int, '3')"),
    *(
        "io.StringIO('ab')",
        "json.JSONEncoder()",
        "json.JSONDecoder()",
        "itertools.count()",
    ),
    *(
        "enum.Enum('E', 'A B')",
        "string.Template('$a')",
        "datetime.datetime(2020, 1, 1)",
    ),
    *("fractions.Fraction(1, 2)", "struct.Struct('i')", "array.array('i', [1, 2])"),
    *("contextlib.ExitStack()", "types.SimpleNamespace(a=1)", "typing.List[int]"),
    *("typing.NamedTuple('N', [('a', int)])", "collections.ChainMap({'a': 1})"),
    *("csv.reader(['a,b'])", "difflib.SequenceMatcher(None, 'ab', 'bc')", "math.pi"),
    *(
        "statistics.NormalDist(0, 1)",
        "functools.lru_cache(lambda a: a)",
        "time.gmtime(0)",
    ),
    *("numpy.arange(6.0)", "numpy.random.default_rng(1)", "numpy.float64(1.5)"),
    *("numpy.dtype([('a', 'f8'), ('b', 'i4')])", "numpy.zeros(2, [('a', 'f8')])"),
    *("numpy.ma.array([1, 2], mask=[0, 1])", "numpy.poly1d([1, 2])", "numpy.sum"),
    *("numpy.array(['a', 'b'])", "numpy.linalg.svd(numpy.eye(2))", "numpy.errstate()"),
    *("numpy.random.RandomState(1)", "numpy.add", "numpy.arange(3).flags"),
    *("torch.ones(2, requires_grad=True)", "torch.nn.Linear(2, 1)", "torch.float32"),
    *(
        "torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1)",
        "torch.Size([1])",
    ),
    *("torch.distributions.Normal(0.0, 1.0)", "torch.Generator()", "torch.no_grad()"),
)
"""Objects worth a look, beyond what calls with constants give."""
