"""The gate's fuzz target, briefly, with a fixed seed."""

import importlib.util
from pathlib import Path


def test_gate_survives_the_fuzz_target():
    path = Path(__file__).with_name("fuzz_gate.py")
    spec = importlib.util.spec_from_file_location("fuzz_gate", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    admitted, refused = module.fuzz(range(1000), seed=7)
    assert admitted > 5
    assert refused > 50
