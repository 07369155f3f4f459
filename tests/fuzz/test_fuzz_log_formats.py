"""The fuzz target of the log's formats, briefly, with a fixed seed."""

import importlib.util
import sys
from pathlib import Path


def test_log_formats_survive_the_fuzz_target() -> None:
    path = Path(__file__).with_name("fuzz_log_formats.py")
    spec = importlib.util.spec_from_file_location("fuzz_log_formats", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look it up
    try:
        spec.loader.exec_module(module)
        accepted, refused = module.fuzz(range(6000), seed=7)
    finally:
        del sys.modules[spec.name]
    assert accepted > 50
    assert refused > 200
