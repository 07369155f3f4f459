"""Load the demo's research as what it is in life: a file of the researcher's own.

Functions of installed packages do not travel, those of one's own files do.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from stoilo.core.errors import InternalError

NAME = "demo_research"


def load_research() -> ModuleType:
    """Return `research.py` as the top-level module ``demo_research``."""
    path = Path(__file__).with_name("research.py")
    spec = importlib.util.spec_from_file_location(NAME, path)
    if spec is None or spec.loader is None:
        raise InternalError("STO-U004", "the demo's research file is missing")
    module = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = module
    spec.loader.exec_module(module)
    return module
