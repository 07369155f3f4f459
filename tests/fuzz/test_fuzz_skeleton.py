"""The skeleton fuzz target, briefly, with a fixed seed."""

import importlib.util
from pathlib import Path


def test_decoder_survives_the_fuzz_target():
    path = Path(__file__).with_name("fuzz_skeleton.py")
    spec = importlib.util.spec_from_file_location("fuzz_skeleton", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    accepted, refused = module.fuzz(range(60_000), seed=7)
    assert accepted > 50
    assert refused > 50
