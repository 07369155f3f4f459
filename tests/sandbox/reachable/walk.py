"""Print what a task can reach from the names of one level, two calls deep.

    python tests/sandbox/reachable/walk.py LEVEL > tests/sandbox/reachable/LEVEL.txt

A line is a type (or a class that was handed out) with the plain names that its instances
show; lines starting with ``LEAK`` are roads to what no task may have
(`stoilo.flavors.describing.walk`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import types
import warnings
from pathlib import Path

from stoilo.flavors.describing.samples import level_samples
from stoilo.flavors.describing.walk import Walk
from stoilo.policies.levels import load_level
from stoilo.sandbox.language.runtime import prepare_runtime


def open_road() -> types.SimpleNamespace:
    """A leak for the control: a module behind two calls."""
    return types.SimpleNamespace(deeper=lambda: sys)


def render(name: str, *, control: bool = False) -> str:
    """Return the list of one level, with a leak put in for the `control`."""
    runtime = prepare_runtime(load_level(name))
    if control:
        leaky = types.ModuleType("leaky")
        vars(leaky)["open_road"] = open_road
        runtime.facades.modules["leaky"] = leaky
    walk = Walk(runtime, level_samples(name))
    walk.start()
    lines = [
        f"{kind.replace(Walk.__module__, '__main__')}: {' '.join(names)}"
        for kind, names in walk.lines.items()
    ]  # what was made for the caller is said to be of `__main__`
    return "".join(f"{line}\n" for line in sorted([*walk.leaks, *lines]))


def main() -> None:
    """Print the list of the level named on the command line."""
    warnings.simplefilter("ignore")
    sys.setrecursionlimit(20_000)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
        text = render(sys.argv[-1], control="--control" in sys.argv)
    sys.stdout.write(text)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
