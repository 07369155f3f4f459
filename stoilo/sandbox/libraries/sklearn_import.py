"""scikit-learn beside a pandas that its flavor does not have; preloaded before it.

It takes pandas where that is installed. A flavor without pandas must answer on every
computer as its frozen tree does: then there is none to find. Where the flavor has pandas,
that is loaded by now.
"""

from __future__ import annotations

import importlib
import sys
from types import SimpleNamespace
from typing import Any

sys.modules.setdefault("pandas", None)  # type: ignore[arg-type]  # asked for by name
_frames: Any = importlib.import_module("sklearn.utils._dataframe")
_loaded = {name: sys.modules.get(name) for name in ("pandas", "polars", "pyarrow")}
# It takes whatever stands in the table for a module
_frames.sys = SimpleNamespace(
    modules={name: module for name, module in _loaded.items() if module is not None}
)
