from __future__ import annotations

import re
from pathlib import Path

import pytest

import stoilo.executor
import stoilo.server.engines
from stoilo.core.codebook import load_codebook


@pytest.mark.parametrize(
    ("package", "letter"), [(stoilo.server.engines, "E"), (stoilo.executor, "X")]
)
def test_every_code_has_its_page_and_every_page_its_code(package, letter):
    folder = Path(package.__file__).parent
    text = "".join(page.read_text() for page in folder.rglob("*.py"))
    used = set(re.findall(rf"STO-{letter}[0-9]{{3}}", text))
    assert used == {code for code in load_codebook() if code[4] == letter}
