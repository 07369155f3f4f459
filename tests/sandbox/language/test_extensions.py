"""What own classes may extend and define: every name that is not listed is refused."""

import json
import subprocess
import sys
from enum import Enum
from keyword import iskeyword
from pathlib import Path
from types import FunctionType
from typing import Generic

import pytest

from stoilo.core.codec import skeleton
from stoilo.core.errors import InternalError
from stoilo.core.levels import load_levels
from stoilo.policies.levels import load_level
from stoilo.sandbox.facades import logs
from stoilo.sandbox.language.output import TextBuffer
from stoilo.sandbox.language.ownership import (
    PLAIN_TYPES,
    Extensions,
    class_mro,
    is_guarded_name,
    known_names,
    stored_names,
)
from stoilo.sandbox.language.rules import TASK_MODULE, GuardError
from stoilo.sandbox.language.runtime import prepare_runtime
from stoilo.sandbox.process.supervisor import zygote_environment
from stoilo.sandbox.process.task_job import run_call

CASES = Path(__file__).parents[2] / "attack" / "cases"
HELPERS = ["extended_cached_property", "extended_singledispatchmethod"]
TORCH_WAYS = ["later_mixin", "mixin", "override", "property"]
FORMATTERS = [
    *("text_as_formatter", "text_as_formatter_by_property", "text_as_formatter_later"),
    "text_as_formatter_of_own_class",
]
FINAL = {
    "contextlib": [
        "ExitStack",
        "closing",
        "nullcontext",
        "redirect_stdout",
        "suppress",
    ],
    "dataclasses": ["InitVar"],
    "enum": ["auto", "member", "property"],
    "functools": [
        "cached_property",
        "partial",
        "partialmethod",
        "singledispatchmethod",
    ],
    "itertools": ["chain", "groupby"],
    "logging": ["LogRecord", "Logger"],
    "operator": ["itemgetter"],
    "pathlib": ["PurePath"],
    "struct": ["Struct"],
    "tqdm": ["tqdm"],
    "types": ["GenericAlias", "SimpleNamespace"],
    "warnings": ["catch_warnings"],
}


class OpenExtensions:
    """The check taken out."""

    def admits(self, _base):
        return True

    def check_class(self, *_class):
        """Refuse nothing."""

    def may_define(self, _cls, _name):
        return True

    def gives(self, _library, _name):
        return False


def body_defining(*names):
    """Return what a class statement would hand over: a body that binds `names`."""
    lines = [f"{name} = hostile" for name in names]
    code = compile("\n".join(["__module__ = __name__", *lines]), "<task>", "exec")
    return FunctionType(code, {"__name__": TASK_MODULE, "hostile": property(id)})


def library_bases(runtime):
    """Return the classes of a level that a task may extend and that have names to keep."""
    admitted = [base for base in runtime.guards.bases if base not in PLAIN_TYPES]
    return [base for base in admitted if runtime.guards._extensions.admits(base)]


def spelled(names):
    return sorted(name for name in names if name.isidentifier() and not iskeyword(name))


@pytest.fixture
def guards(runtimes):
    return runtimes["pure"].guards


@pytest.fixture
def names(runtimes):
    return runtimes["pure"].facades.import_name


def kept_names_of(runtime):
    """Yield each class that may be extended with each name that it or a base keeps."""
    for base in library_bases(runtime):
        for library in set(class_mro(base)) - PLAIN_TYPES:
            listed = runtime.guards._extensions._list_of(library)
            for name in spelled(known_names(library) - listed):
                if "*" not in listed or is_guarded_name(name):
                    yield base, name


def count_refusals(runtime):
    """Define each such name in a class of its own; return how many were refused."""
    refused = 0
    for base, name in kept_names_of(runtime):
        with pytest.raises(GuardError) as caught:
            runtime.guards.build_class(body_defining(name), "C", base)
        assert (caught.value.code, name in caught.value.message) == ("STO-G105", True)
        refused += 1
    return refused


def names_that_nobody_knows(runtime):
    """Return listed names that would give away nothing: slips in the data."""
    listed = runtime.guards._extensions._listed
    known = dict.fromkeys(listed, frozenset())
    for base in library_bases(runtime):
        for above in set(class_mro(base)) & known.keys():
            known[above] |= {n for cls in class_mro(base) for n in known_names(cls)}
    return {
        f"{cls.__name__}.{name}"
        for cls, names in listed.items()
        for name in names - known[cls] - {"*"}
    }


def run_source(runtime, source):
    fields = {"source": source, "entry": "run", "arguments": skeleton.encode({})}
    fields |= {"blobs": [], "seed": "00" * 32, "now": 0, "items": 0}
    return run_call(runtime, skeleton.encode(fields), TextBuffer())


def attack(runtime, case):
    """Return what a case of the attack corpus says, run by the language layer alone."""
    frame = run_source(runtime, (CASES / f"{case}.py").read_text())
    return skeleton.decode(frame["value"]) if frame["status"] == "ok" else frame["code"]


def look_at(name, *cases):
    """Return what `report` says of a level that this process has not prepared."""
    done = subprocess.run(
        [sys.executable, __file__, name, *cases],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=zygote_environment(),
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("level", ["pure", "numeric"])
def test_no_own_class_defines_a_name_that_its_library_base_keeps(runtimes, level):
    assert count_refusals(runtimes[level]) > 300
    assert names_that_nobody_knows(runtimes[level]) == set()


def test_no_own_module_or_optimizer_defines_a_name_that_torch_keeps():
    refused, slips, open_attacks = look_at(
        "tensor", *(f"torch/names_by_{way}" for way in TORCH_WAYS)
    )
    assert (refused > 10_000, slips) == (True, [])
    assert open_attacks == ["REACHED"] * len(TORCH_WAYS)  # with the check taken out


@pytest.mark.parametrize("case", HELPERS)
def test_helper_of_ours_is_taken_over_without_the_check(runtimes, monkeypatch, case):
    assert attack(runtimes["pure"], f"stdlib/{case}") == "STO-G105"
    monkeypatch.setattr(runtimes["pure"].guards, "_extensions", OpenExtensions())
    assert attack(runtimes["pure"], f"stdlib/{case}") == "REACHED"


@pytest.mark.parametrize("case", FORMATTERS)
def test_text_formats_without_the_checks(runtimes, monkeypatch, case):
    assert attack(runtimes["pure"], f"stdlib/{case}") in {"STO-G105", "STO-G200"}
    monkeypatch.setattr(runtimes["pure"].guards, "_extensions", OpenExtensions())
    monkeypatch.setattr(logs, "_as", lambda _kind, value: value)
    assert attack(runtimes["pure"], f"stdlib/{case}") == "REACHED"


def test_without_the_check_every_such_class_is_made(runtimes, monkeypatch):
    guards = runtimes["pure"].guards
    kept = [
        (base, name)
        for base, name in kept_names_of(runtimes["pure"])
        if not issubclass(base, Enum | Generic)
    ]
    monkeypatch.setattr(guards, "_extensions", OpenExtensions())
    made = [guards.build_class(body_defining(name), "C", base) for base, name in kept]
    assert len(made) > 300


@pytest.mark.parametrize(
    ("module", "name"), [(m, name) for m, found in FINAL.items() for name in found]
)
def test_helper_of_a_library_is_final(guards, names, module, name):
    with pytest.raises(GuardError, match="cannot extend"):
        guards.build_class(body_defining(), "C", names(module, name))


@pytest.mark.parametrize("late", [False, True])
def test_mixin_answers_for_no_name_of_a_library(guards, names, late):
    random = names("random", "Random")
    mixin = guards.build_class(body_defining(*[] if late else ["_randbelow"]), "Mixin")
    if not late:
        with pytest.raises(GuardError, match="Mixin cannot define '_randbelow'"):
            guards.build_class(body_defining(), "C", mixin, random)
        return
    guards.build_class(body_defining(), "C", mixin, random)
    for name in ("_randbelow", "VERSION"):
        with pytest.raises(GuardError) as caught:
            guards.setattr(mixin, name, property(id))
        assert caught.value.code == "STO-G102"
    guards.setattr(mixin, "free", 1)


def test_name_of_another_base_is_kept_from_both(guards, names):
    queue, random = names("queue", "Queue"), names("random", "Random")
    sorter = names("graphlib", "TopologicalSorter")
    with pytest.raises(GuardError, match="'_get_nodeinfo'"):
        guards.build_class(body_defining("_get_nodeinfo"), "C", queue, sorter)
    made = guards.build_class(body_defining("_get", "choice"), "C", queue, random)
    assert issubclass(made, queue)


def test_listed_and_unknown_names_are_free_also_later(guards, names):
    encoder = names("json", "JSONEncoder")
    made = guards.build_class(body_defining("default", "mine", "_mine"), "C", encoder)
    guards.setattr(made, "item_separator", ";")
    guards.setattr(made, "other", 1)
    child = guards.build_class(body_defining("encode"), "D", made)
    assert child.item_separator == ";"


def test_names_that_the_library_itself_defines_below_are_no_attack(guards, names):
    """``random.Random`` and enumerations write private names into their subclasses."""
    first = guards.build_class(body_defining("random"), "A", names("random", "Random"))
    assert "_randbelow" in vars(first)
    guards.build_class(body_defining("getrandbits"), "B", first)


def test_body_defines_what_any_statement_binds():
    source = (
        "import a\nfor b in c: pass\ndef d(): e = 1\nclass f: pass\nwith g as h: pass"
    )
    assert stored_names(compile(source, "", "exec")) == {"a", "b", "d", "f", "h"}


class Library:
    """What a library might have."""

    public = 1

    def method(self, other):
        """Read of itself and of another."""
        return self.read, other.unread, lambda: self.nested

    def _private(self):
        return self.method.far


def test_library_class_knows_what_it_holds_and_reads_off_itself():
    known = known_names(Library)
    assert {"public", "method", "read", "_private"} <= known
    assert not {"unread", "far", "mine", "__doc__", "__init__"} & known


@pytest.mark.parametrize("dotted", ["random.Ranbom", "nowhere.Random", "random.choice"])
def test_list_of_what_is_no_class_is_broken_level_data(runtimes, dotted):
    with pytest.raises(InternalError) as caught:
        Extensions({dotted: ()}, runtimes["pure"].facades.modules)
    assert caught.value.code == "STO-P001"


def test_wider_level_keeps_the_lists_of_the_narrower():
    pure, *wider = load_levels()
    assert all(pure.overrides.items() <= level.overrides.items() for level in wider)


@pytest.mark.parametrize(
    ("base", "code"),
    [("Wrapper, Enum", "STO-G105"), ("IntEnum", ""), ("str, Enum", "")],
)
def test_enum_by_call_takes_no_name_of_a_library(runtimes, base, code):
    source = (
        "from enum import Enum, IntEnum\nfrom textwrap import TextWrapper\n"
        f"class Wrapper(TextWrapper):\n    pass\nclass E({base}):\n    pass\n"
        "def run(kwargs):\n    return len(E('Made', {'width': 1}))\n"
    )
    frame = run_source(runtimes["pure"], source)
    assert (frame["code"], frame["status"] == "ok") == (code, not code)


def report(runtime, cases):
    """Return what was refused, slips in the data, and attacks with the check taken out."""
    found = [count_refusals(runtime), [*names_that_nobody_knows(runtime)]]
    runtime.guards._extensions = OpenExtensions()
    return [*found, [attack(runtime, case) for case in cases]]


if __name__ == "__main__":
    print(json.dumps(report(prepare_runtime(load_level(sys.argv[1])), sys.argv[2:])))
