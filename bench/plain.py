"""Plain CPython as a peer: a warm process that forks for each program, without any jail.

Run as a script. Every line of its input is a JSON object ``{"source", "n"}``, every line of
its output ``{"answer", "cpu_s"}``: what the forked child gave, and what it used. Its
arguments are modules to import first, and torch's settings as ``onednn=0``, ``threads=1``.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import types
from typing import Any

ENTRY = "task"


def run_program(source: str, n: int) -> str:
    """Compile, load and call a program; returns its answer as JSON."""
    module = types.ModuleType("plain_task")
    sys.modules[module.__name__] = module  # dataclasses look it up
    exec(compile(source, "<plain>", "exec", dont_inherit=True), module.__dict__)  # noqa: S102 - our own programs
    return json.dumps({"answer": getattr(module, ENTRY)({"n": n})})


def apply_settings(settings: dict[str, int]) -> None:
    """Set torch's threads and oneDNN; after the fork, which no thread pool survives."""
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.backends.mkldnn.set_flags(_enabled=bool(settings["onednn"]))
        torch.backends.nnpack.set_flags(_enabled=bool(settings["onednn"]))
        torch.set_num_threads(settings["threads"])


def warm_up() -> None:
    """Let torch load what its optimisers need at first use, as our zygote does."""
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        apply_settings({"onednn": 0, "threads": 1})
        layer = torch.nn.Linear(2, 2)
        step = torch.optim.Adam(layer.parameters())
        layer(torch.zeros(1, 2)).sum().backward()
        step.step()


def serve() -> None:
    """Answer line by line until the input ends."""
    settings = {}
    for word in sys.argv[1:]:
        name, _, value = word.partition("=")
        if value:
            settings[name] = int(value)
        else:
            importlib.import_module(name)
    warm_up()
    for line in sys.stdin:
        order = json.loads(line)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            apply_settings(settings)
            os.write(write, run_program(order["source"], order["n"]).encode())
            os._exit(0)
        os.close(write)
        with open(read, "rb") as pipe:  # noqa: PTH123 - a descriptor
            reply = pipe.read()
        _, _, usage = os.wait4(child, 0)
        answer = {**json.loads(reply), "cpu_s": usage.ru_utime + usage.ru_stime}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve()
