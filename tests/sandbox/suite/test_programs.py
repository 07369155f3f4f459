import pytest

from stoilo.sandbox.suite.case import parse_case
from stoilo.sandbox.suite.programs import (
    Ground,
    as_probe,
    imports_of,
    preload_of,
    validator_of,
)


def make_case(program, *keys):
    lines = "".join(f"# {key}\n" for key in ('idea = "x"', *keys))
    return parse_case(f"# /// stoilo-case\n{lines}# ///\n{program}".encode(), "n")


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("import wave", {"wave"}),
        ("    import wave as w, xml.dom", {"wave", "xml.dom"}),
        ("from wave import open", {"wave"}),
        ("import antigravity, no_such, setuptools", set()),
        ("text = 'import'", set()),
    ],
)
def test_imports_of_the_standard_library_are_found_in_the_text(line, found):
    ordinary = imports_of(make_case("pass\n"))
    assert imports_of(make_case(f"{line}\n")) - ordinary == found


def test_preload_names_only_what_exists_here():
    case = make_case("import msvcrt, wave\n", 'preload = ["email.mime"]')
    assert {"wave", "email.mime"} <= set(preload_of([case]))
    assert "msvcrt" not in preload_of([case])


def test_last_of_two_validators_is_called():
    assert (
        validator_of(make_case("def compare(a, b): ...\ndef init(a): ...\n")) == "init"
    )


@pytest.mark.parametrize("kind", ["task", "probe", "validator", "result"])
def test_program_of_every_kind_is_valid_python_as_a_probe(kind):
    keys = (f'run = "{kind}"', 'stopped_by = "kernel"')
    with Ground.make() as ground:
        source = as_probe(make_case("def run(kwargs): ...\n", *keys), ground)
    compile(source, "<probe>", "exec")
    assert str(ground.canary) in source


def test_library_modules_that_exist_are_preloaded_without_importing_them():
    case = make_case("import numpy.fft, numpy.no_such\n", 'preload = ["torch.nn"]')
    found = set(preload_of([case]))
    assert {"numpy.fft", "torch.nn"} <= found
    assert "numpy.no_such" not in found
