"""Documentation says what is: links, paths, commands, code, generated pages."""

import ast
import importlib.util
import re
import shlex
from functools import cache
from pathlib import Path

import click
import pytest

from stoilo.cli.main import cli
from stoilo.core.codebook import CODE_PATTERN, load_codebook
from stoilo.core.codec import json_values
from stoilo.core.levels import load_levels
from stoilo.core.rpc import accounts_pb2, reviews_pb2, tasks_pb2
from stoilo.executor.verifier.installation import parse_opt_in
from stoilo.server.config import load_config

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("examples/*.md"), *(ROOT / "docs").rglob("*.md")]
)
FENCE = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
PARTS = "|".join(one.parent.name for one in (ROOT / "stoilo").glob("*/__init__.py"))
MODULE_PATH = re.compile(rf"`((?:{PARTS})/[\w./-]+\.(?:py|toml))`")
TEST_PATH = re.compile(r"`((?:tests|stoilo|docs|scripts|examples)/[\w./-]+)`")


@cache
def generator():
    path = ROOT / "scripts" / "write_reference.py"
    spec = importlib.util.spec_from_file_location("write_reference", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def name_of(path):
    return str(path.relative_to(ROOT))


def blocks(path, *languages):
    text = path.read_text(encoding="utf-8")
    return [body for language, body in FENCE.findall(text) if language in languages]


def anchors(path):
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    bare = [re.sub(r"[^\w\- ]", "", title.lower()) for title in titles]
    return {title.replace(" ", "-") for title in bare}


def broken_links(path):
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    for target in LINK.findall(text):
        if target.startswith(("http://", "https://")):
            continue
        place, _, anchor = target.partition("#")
        file = (path.parent / place).resolve() if place else path
        if not file.exists() or (anchor and anchor not in anchors(file)):
            yield target


def command_lines(path):
    """Yield the words of every `stoilo …` line of a page's shell blocks."""
    for body in blocks(path, "sh", "console"):
        for line in body.replace("\\\n", " ").splitlines():
            words = line.removeprefix("$ ")
            if words.startswith("stoilo "):
                yield shlex.split(words, comments=True)[1:]


def unknown_words(words):
    """Yield what `stoilo` would not understand: commands and options."""
    command, rest = cli, list(words)
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        name = rest.pop(0)
        command = command.get_command(click.Context(command), name)
        if command is None:
            yield name
            return
    known = {flag for item in command.params for flag in item.opts} | {"--help", "-h"}
    yield from (word for word in rest if word.startswith("-") and word not in known)


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_relative_links_and_anchors_resolve(path):
    assert list(broken_links(path)) == []


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_named_files_exist(path):
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    named = TEST_PATH.findall(text)
    if path.parent.name != "adr":  # decisions speak of the tree of their day
        named += [f"stoilo/{one}" for one in MODULE_PATH.findall(text)]
    assert [one for one in named if not (ROOT / one).exists()] == []


def test_map_of_the_architecture_equals_the_tree():
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert generator().render_architecture(text) == text
    folders = {path.parent.name for path in (ROOT / "stoilo").glob("*/__init__.py")}
    assert folders <= set(re.findall(r"^\| `(\w+)/` \|", text, re.MULTILINE))


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_python_blocks_compile(path):
    for body in blocks(path, "python"):
        compile(body, name_of(path), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_commands_and_options_exist(path):
    lines = list(command_lines(path))
    assert [
        (line, list(unknown_words(line))) for line in lines if list(unknown_words(line))
    ] == []


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_error_codes_exist(path):
    named = CODE_PATTERN.findall(path.read_text(encoding="utf-8"))
    assert sorted(set(named) - set(load_codebook())) == []


@pytest.mark.parametrize(
    "name",
    [
        "cli.md",
        "levels.md",
        "libraries.md",
        "limits.md",
        "python-api.md",
        "redundancy.md",
    ],
)
def test_generated_page_is_what_the_code_says(name):
    """`make docs` mends it."""
    page = ROOT / "docs" / "reference" / name
    assert page.read_text(encoding="utf-8") == generator().render_page(name)


def test_every_command_is_in_the_reference_with_its_own_help():
    shown = blocks(ROOT / "docs" / "reference" / "cli.md", "text")
    assert [text.rstrip() for text in shown] == [
        text.rstrip() for text in generator().help_text().values()
    ]


def test_help_of_the_generator_is_what_the_command_prints(capsys):
    with pytest.raises(SystemExit):
        cli.main(["policy", "check", "--help"], prog_name="stoilo", terminal_width=78)
    assert (
        capsys.readouterr().out.rstrip()
        == generator().help_text()["stoilo policy check"].rstrip()
    )


@pytest.mark.parametrize("page", ["howto/volunteer.md", "reference/opt-in.md"])
def test_opt_in_examples_are_read(page):
    (text,) = blocks(ROOT / "docs" / page, "toml")
    assert parse_opt_in(text.encode()).max_level == "numeric"


def test_settings_example_is_read(tmp_path):
    origins = []
    for text in blocks(ROOT / "docs" / "howto" / "run-a-server.md", "toml"):
        (tmp_path / "stoilo.toml").write_text(text, encoding="utf-8")
        origins.append(load_config(tmp_path, {}, {})[0].origin)
    assert "lab.example/project" in origins


def test_values_page_names_every_form():
    text = (ROOT / "docs" / "reference" / "values.md").read_text(encoding="utf-8")
    assert [form for form in json_values._PARSERS if f'"{form}"' not in text] == []


def test_grpc_page_names_every_call():
    text = (ROOT / "docs" / "reference" / "grpc.md").read_text(encoding="utf-8")
    for file in (tasks_pb2, reviews_pb2, accounts_pb2):
        (service,) = file.DESCRIPTOR.services_by_name.values()
        assert [
            one.name for one in service.methods if f"`{one.name}`" not in text
        ] == []


def test_every_decision_is_in_the_index():
    folder = ROOT / "docs" / "adr"
    index = (folder / "README.md").read_text(encoding="utf-8")
    pages = sorted(page.name for page in folder.glob("[0-9]*.md"))
    assert [page for page in pages if f"({page})" not in index] == []
    assert len({page[:4] for page in pages}) == len(pages)


def test_no_page_names_a_level_that_does_not_exist():
    levels = {level.name for level in load_levels()}
    assert levels == {"pure", "numeric", "tensor"}, (
        "levels.md and README say what is there"
    )


def test_the_checks_would_notice(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("[a](nowhere.md) [b](page.md#none)\n\n```sh\nstoilo up --no\n```\n")
    assert list(broken_links(page)) == ["nowhere.md", "page.md#none"]
    assert [list(unknown_words(line)) for line in command_lines(page)] == [["--no"]]
    assert list(unknown_words(["nothing"])) == ["nothing"]
