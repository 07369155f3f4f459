"""The codebook, the code that uses it and the reference page say the same."""

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from importlib import resources
from pathlib import Path

import pytest

from stoilo.cli.explain import render_markdown
from stoilo.cli.main import main
from stoilo.core.codebook import CODE_PATTERN, load_codebook

PACKAGE = Path(str(resources.files("stoilo")))
PAGE = PACKAGE.parent / "docs" / "reference" / "error-codes.md"

C_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')


def strings_of(tree: ast.Module) -> Iterator[str]:
    """Yield every string of a module that is not a docstring or a lone expression."""
    nodes = list(ast.walk(tree))
    lone = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in lone
        ):
            yield node.value


@cache
def used_codes() -> dict[str, str]:
    """Return code → a file that raises or reports it: Python, or the launcher's C."""
    pages = {
        path: strings_of(ast.parse(path.read_text(encoding="utf-8")))
        for path in sorted(PACKAGE.rglob("*.py"))
        if b"STO-" in path.read_bytes()
    }
    programs = {
        path: C_STRING.findall(path.read_text(encoding="utf-8"))
        for path in sorted(PACKAGE.rglob("*.[ch]"))
    }
    return {
        code: str(path.relative_to(PACKAGE))
        for path, texts in (*pages.items(), *programs.items())
        for text in texts
        for code in CODE_PATTERN.findall(text)
    }


def test_every_code_in_use_has_a_page() -> None:
    missing = {
        code: where
        for code, where in used_codes().items()
        if code not in load_codebook()
    }
    assert missing == {}


def test_every_page_is_of_a_code_in_use() -> None:
    assert sorted(set(load_codebook()) - set(used_codes())) == []


def test_every_page_is_complete() -> None:
    for entry in load_codebook().values():
        assert CODE_PATTERN.fullmatch(entry.code)
        assert entry.title
        assert not entry.title.endswith(".")
        assert entry.why.endswith(".")
        assert entry.action.endswith((".", ")"))


def test_codes_of_one_area_stand_in_its_file_once_in_order() -> None:
    for page in (PACKAGE / "core" / "codes").glob("*.toml"):
        codes = re.findall(r"^\[(STO-.*)\]$", page.read_text("utf-8"), re.MULTILINE)
        assert codes == sorted(set(codes))
        assert {code[4] for code in codes} == {page.stem}


def test_reference_page_is_the_codebook() -> None:
    """`stoilo explain --all --format markdown > docs/reference/error-codes.md` mends it."""
    page = render_markdown(list(load_codebook().values()))
    assert PAGE.read_text(encoding="utf-8") == page


def test_command_prints_the_reference_page(capsys) -> None:
    assert main(["explain", "--all", "--format", "markdown"]) == 0
    assert capsys.readouterr().out == PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("code", ["STO-P040", " sto-p040 "])
def test_one_code_is_explained(code: str, capsys) -> None:
    assert main(["explain", code]) == 0
    out = capsys.readouterr().out
    assert out.startswith("STO-P040  ")
    assert "Do:" in out


def test_unknown_code_exits_2(capsys) -> None:
    assert main(["explain", "STO-Z999"]) == 2
    assert "STO-U003" in capsys.readouterr().err


def test_without_code_all_are_listed(capsys) -> None:
    assert main(["explain"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(load_codebook())


def test_json_has_the_fields_of_a_page(capsys) -> None:
    assert main(["explain", "STO-P040", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert set(document) == {"code", "title", "why", "action"}
