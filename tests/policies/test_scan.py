import ast
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stoilo.policies.text import find_deep_brackets, find_words

HARMLESS = [
    "(" * 50 + "1" + ")" * 50,
    "x = '((((((((((((((((((((((((((((((((((((((((((((((((((((((((('",
    "# " + "[" * 99,
    '"""\n' + "{" * 99 + '\n"""',
    r"'\'" + "(" * 99 + "'",
    "()" * 99,
]


@pytest.mark.parametrize("text", HARMLESS)
def test_brackets_that_do_not_nest_deep_pass(text: str) -> None:
    assert find_deep_brackets(text, 50) == []


def test_first_bracket_too_deep_is_named() -> None:
    (finding,) = find_deep_brackets("x = 1\n" + "[" * 51, 50)
    assert (finding.code, finding.line, finding.column) == ("STO-P022", 2, 51)


@pytest.mark.parametrize("unit", ["'", '"', "'''", '"""', "\\", "''' ", "'\\\n", "é"])
def test_hostile_text_is_scanned_in_linear_time(unit: str) -> None:
    started = time.process_time()
    text = unit * (262_144 // len(unit))
    find_deep_brackets(text, 50)
    list(find_words(text))
    assert time.process_time() - started < 2


@example(["f'''é{é:{é}}{{é}}'''", "'é'"])
@example(["f'{é}'", "'é'"])
@given(
    st.lists(
        st.sampled_from(
            [
                "é",
                "'é'",
                "f'{é}'",
                "f'''é{é:{é}}{{é}}'''",
                "#é\n",
                "(",
                ")",
                "\n",
                " ",
                "1",
                '"""',
            ]
        )
    )
)
def test_words_are_the_names_that_the_parser_sees(parts: list[str]) -> None:
    text = "".join(parts)
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return
    names = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]
    assert sorted(word.text for word in find_words(text)) == sorted(names)
