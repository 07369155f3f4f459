import ast
from io import StringIO
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import PolicyRefusal
from stoilo.core.types import BOUNDS
from stoilo.sandbox.language.rules import (
    DEFINABLE_DUNDERS,
    LANGUAGE_DIGEST,
    NameKind,
    attribute_kind,
    is_variable_name,
    mangled,
)
from stoilo.sandbox.language.runtime import TaskPrinter
from stoilo.sandbox.language.transformer import (
    check_tree,
    compile_source,
    restrict_tree,
)


def findings(source, level):
    return [(item.code, item.line, item.column) for item in check(source, level)]


def check(source, level):
    return check_tree(ast.parse(source), level)


def rewritten(source, level):
    tree = ast.parse(source)
    assert restrict_tree(tree, level) == []
    return ast.unparse(tree)


def test_clean_source_has_no_findings(pure):
    assert check("import math\ndef f(d):\n    return math.pi\n", pure) == []


def test_finding_has_place_from_one_and_hint(pure):
    (found,) = check("def f(d):\n    return d.__code__\n", pure)
    assert (found.code, found.line, found.column) == ("STO-G101", 2, 12)
    assert (found.end_line, found.end_column) == (2, 22)
    assert "__code__" in found.message
    assert found.hint


def test_every_finding_is_listed_in_order(pure):
    source = "import os\nx = eval\ny = x.__class__.__bases__\n"
    codes = [code for code, _, _ in findings(source, pure)]
    assert codes == ["STO-P040", "STO-G020", "STO-G101"]


def test_check_leaves_the_tree_alone(pure):
    source = "import math\nclass A:\n    def f(self) -> int:\n        return self._x\n"
    tree = ast.parse(source)
    before = ast.dump(tree, include_attributes=True)
    check_tree(tree, pure)
    assert ast.dump(tree, include_attributes=True) == before


def test_plain_names_compile_to_direct_access(pure):
    source = "def f(a):\n    a[0] += a.b\n    x, y = a.c(*a)\n    return x"
    assert rewritten(source, pure) == source


def test_method_tests_self_once_and_is_direct_inside(pure):
    source = (
        "class A:\n    def f(self):\n        self.x = 1\n"
        "        return [self._y for _ in range(3)]"
    )
    text = rewritten(source, pure)
    assert text.count("_stoilo_check_self(self, ('_y',))") == 1
    assert "_stoilo_write" not in text
    assert "_stoilo_getattr" not in text


def test_method_compares_with_its_class_which_is_bound_from_the_start(pure):
    source = '"text"\nclass A:\n    def f(self):\n        self.x = 1'
    text = rewritten(source, pure)
    assert text.splitlines()[1] == "_stoilo_class_0 = None"
    assert "@_stoilo_known('_stoilo_class_0')" in text
    assert "_stoilo_type(self) is _stoilo_class_0 or" in text


SEES = """
class Job: pass
class Other: pass
def mark(job):
    job.n = 1
    return job
def run(kind):
    return [mark(kind()).n for _ in range(3)]
"""


def test_place_remembers_the_first_own_type_that_it_is_shown(runtimes):
    runtime = runtimes["pure"]
    code = compile_source(SEES, runtime.level)
    module = runtime.load(code, TaskPrinter(StringIO()))
    assert module.__dict__["_stoilo_type_0"] is None
    module.run(module.Job)
    module.run(module.Other)
    assert module.__dict__["_stoilo_type_0"] is module.Job


def test_place_never_remembers_a_type_of_a_library(runtimes):
    runtime = runtimes["pure"]
    code = compile_source(SEES, runtime.level)
    module = runtime.load(code, TaskPrinter(StringIO()))
    for _ in range(3):
        module.mark(SimpleNamespace())
    assert module.__dict__["_stoilo_type_0"] is None


@pytest.mark.parametrize("base", ["random.Random", "Exception", "Decorated"])
def test_private_class_name_is_bound_to_safe_classes_only(runtimes, base):
    runtime = runtimes["pure"]
    source = (
        "import random\nclass Decorated: pass\n"
        f"class A({base}):\n    def f(self):\n        return self._x"
    )
    module = runtime.load(
        compile_source(source, runtime.level), TaskPrinter(StringIO())
    )
    bound = module.__dict__["_stoilo_class_0"]
    assert bound is (None if base == "random.Random" else module.A)


@pytest.mark.parametrize(
    "body",
    [
        "self = d",
        "for self in d: pass",
        "del self",
        "import math as self",
        "with d as self: pass",
        "def g():\n            nonlocal self\n            self = d",
        "match d:\n            case [self]: pass",
        "[0 for _ in d if (self := d)]",
    ],
)
def test_rebound_self_is_not_trusted(pure, body):
    source = f"class A:\n    def f(self, d):\n        {body}\n        self.x = 1"
    assert (
        "else _stoilo_write(_stoilo_seen('_stoilo_type_0', self), 'x')).x = 1"
        in rewritten(source, pure)
    )


def test_self_of_static_and_class_methods_is_not_trusted(pure):
    for decorator in ("staticmethod", "classmethod"):
        source = f"class A:\n    @{decorator}\n    def f(c):\n        c.x = 1"
        assert (
            "else _stoilo_write(_stoilo_seen('_stoilo_type_0', c), 'x')"
            in rewritten(source, pure)
        )


def test_parameter_named_self_of_inner_function_is_not_trusted(pure):
    source = (
        "class A:\n    def f(self):\n        self.x = 1\n"
        "        return lambda self: self._y"
    )
    assert (
        "else _stoilo_getattr(_stoilo_seen('_stoilo_type_0', self), '_y')"
        in rewritten(source, pure)
    )


def test_function_annotations_are_erased(pure):
    source = "def f(a: 'x', *b: y, c: z=1) -> w:\n    q: 'text' = 1\n    return q"
    text = rewritten(source, pure)
    assert "text" not in text
    assert "->" not in text


def test_class_annotation_of_text_is_erased_and_others_are_kept(pure):
    text = rewritten("class A:\n    x: 'int' = 1\n    y: int = 2", pure)
    assert "x: None" in text
    assert "y: int" in text


def test_imports_become_private_calls(pure):
    text = rewritten("import json as j\nfrom math import pi as p\nimport math", pure)
    assert "j = _stoilo_import('json', True)" in text
    assert "p = _stoilo_import_name('math', 'pi')" in text
    assert "math = _stoilo_import('math', False)" in text


def test_module_of_a_higher_level_is_refused_at_the_lower(pure, numeric):
    source = "import numpy.linalg\n"
    assert [code for code, _, _ in findings(source, pure)] == ["STO-P040"]
    assert findings(source, numeric) == []


def test_builtin_name_is_free_for_the_task_to_bind(pure):
    assert (
        check("def f(open, id=1):\n    input = open\n    return input, id", pure) == []
    )


@pytest.mark.parametrize("name", sorted(DEFINABLE_DUNDERS))
def test_definable_dunder_only_in_a_class(pure, name):
    assert check(f"class A:\n    def {name}(self, *a): pass", pure) == []
    assert findings(f"def {name}(): pass", pure)


def test_type_parameters_of_later_pythons_are_refused(pure):
    tree = ast.parse("def f(): pass\nclass A: pass")
    for node in tree.body:
        node.type_params = [ast.Name("_stoilo_type", ast.Store())]
    assert {item.code for item in restrict_tree(tree, pure)} == {"STO-G014"}


@pytest.mark.parametrize(
    "source",
    [
        "x = " + "-" * 3000 + "1",
        "x = " + "a." * 5000 + "b",
        "x = " + "[" * 300 + "]" * 300,
        "if 1: pass\n" + "elif 1: pass\n" * 3000,
        "x = 1" + "+1" * 40000,
    ],
)
def test_deep_source_is_refused_not_raised(pure, source):
    with pytest.raises(PolicyRefusal) as caught:
        compile_source(source, pure)
    assert caught.value.code in {"STO-P023", "STO-P022"}


def test_many_nodes_are_refused(pure):
    with pytest.raises(PolicyRefusal) as caught:
        compile_source("x = 1\n" * BOUNDS.ast_nodes, pure)
    assert caught.value.code == "STO-P022"


def test_nul_byte_and_broken_syntax_are_refused(pure):
    for source in ("x = '\0'", "def f(:", "return 1", "x = 1\n  y = 2", "\ud800 = 1"):
        with pytest.raises(PolicyRefusal):
            compile_source(source, pure)


@given(st.text(max_size=60))
def test_any_text_compiles_or_is_refused(text):
    level = LEVEL
    try:
        compile_source(text, level)
    except PolicyRefusal as refusal:
        assert refusal.code.startswith(("STO-G", "STO-P"))


@given(st.sampled_from(["__", "_", "", "gi_", "_stoilo_"]), st.text("abc_", max_size=8))
def test_mangling_never_makes_a_dunder_or_hides_a_refused_name(prefix, name):
    full = prefix + name
    for class_name in ("A", "_B", "__", "stoilo"):
        seen = mangled(full, class_name)
        if attribute_kind(full) is NameKind.REFUSED:
            assert seen == full
        if not is_variable_name(seen):
            assert seen.startswith("_")


def test_mangling_is_the_compilers():
    for class_name in ("A", "_B", "__C", "___"):
        source = f"class {class_name}:\n    def f(x): return x.__y"
        outer = compile(source, "", "exec").co_consts[0]
        method = next(c for c in outer.co_consts if hasattr(c, "co_names"))
        assert method.co_names == (mangled("__y", class_name),)


def test_language_digest_is_stable():
    assert len(LANGUAGE_DIGEST) == 64


@pytest.fixture(autouse=True)
def _level(pure):
    global LEVEL  # noqa: PLW0603 - hypothesis takes no function-scoped fixtures
    LEVEL = pure


LATER_SYNTAX = (
    "type X = int",
    "def f[T](x): pass",
    "class C[T]: pass",
    "def f[T = int](): pass",
    "x = t'{1}'",
)


@pytest.mark.parametrize("source", LATER_SYNTAX)
def test_syntax_of_later_pythons_is_refused_by_every_python(pure, source):
    with pytest.raises(PolicyRefusal) as caught:
        compile_source(source, pure)
    assert caught.value.code in {"STO-P023", "STO-G014"}


@pytest.mark.parametrize("name", ["__buffer__", "__replace__", "__annotate__"])
def test_special_methods_of_later_pythons_cannot_be_defined(pure, name):
    assert findings(f"class A:\n    def {name}(self): pass", pure)
    assert findings(f"def f(x): return x.{name}", pure)
