"""Run training programs without any layer and print each answer as one JSON line.

The settings are those of a zygote (docs/adr/0012): one thread, no oneDNN, no NNPACK, no
path optimiser. Arguments: the programs' paths; the environment is the caller's.
"""

import contextlib
import io
import json
import sys
import types
import warnings
from pathlib import Path

import torch

from stoilo.core.codec import skeleton
from stoilo.core.codec.nodes import to_node
from stoilo.sandbox.language.runtime import start_item

torch.set_num_threads(1)
torch.backends.mkldnn.set_flags(_enabled=False)
torch.backends.nnpack.set_flags(_enabled=False)
torch.backends.opt_einsum.enabled = False


def show_warning(message, category, *_place):
    """Print a warning as a task's printer does."""
    sys.stdout.write(f"{category.__name__}: {message}\n")


warnings.showwarning = show_warning
for path in map(Path, sys.argv[1:]):
    module = types.ModuleType("stoilo_task")
    sys.modules["stoilo_task"] = module
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        start_item(bytes(32), 0, 1_700_000_000)
        code = compile(
            path.read_text(encoding="utf-8"), "<task>", "exec", dont_inherit=True
        )
        exec(code, module.__dict__)
        value = skeleton.encode(to_node(module.run({})))
    print(
        json.dumps(
            {"name": path.stem, "value": value.hex(), "output": printed.getvalue()}
        )
    )
