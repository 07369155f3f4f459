from __future__ import annotations

import re
from pathlib import Path

import pytest

import stoilo
from stoilo.core.codebook import load_codebook


@pytest.mark.parametrize("letter", ["E", "X"])
def test_every_code_has_its_page_and_every_page_its_code(letter):
    folder = Path(stoilo.__file__).parent
    text = "".join(page.read_text() for page in folder.rglob("*.py"))
    used = set(re.findall(rf"STO-{letter}[0-9]{{3}}", text))
    assert used == {code for code in load_codebook() if code[4] == letter}
