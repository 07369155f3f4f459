from __future__ import annotations

import re
from pathlib import Path

import stoilo.server
from stoilo.core.codebook import load_codebook


def test_every_code_the_server_raises_has_its_page() -> None:
    folder = Path(stoilo.server.__file__).parent
    text = "".join(page.read_text() for page in folder.rglob("*.py"))
    used = set(re.findall(r'"(STO-R[0-9]{3})"', text))
    assert used - set(load_codebook()) == set()
    pages = {code for code in load_codebook() if code.startswith("STO-R")}
    # R074 is raised where core binds an address
    assert pages - used - {"STO-U006", "STO-R075"} == set()
