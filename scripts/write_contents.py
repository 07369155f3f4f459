"""Write stoilo/flavors/contents from what really is imported.

For a flavor: what a zygote has loaded when it is ready for the flavor's level. For the
verifier: what its program imports, with what our own modules import inside functions.
Libraries, sources and data files are kept as they are; a build says what it misses there.
A difference is reviewed like any other change: every volunteer runs it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec

from stoilo.flavors.contents import parse_contents
from stoilo.flavors.manifest import shipped_flavors
from stoilo.policies.levels import load_level
from stoilo.sandbox.process.channel import TASK_JOB, Hello, Programs
from stoilo.sandbox.process.supervisor import library_folders, zygote_environment

FOLDER = Path(__file__).resolve().parent.parent / "stoilo" / "flavors" / "contents"
PRINT = """
import importlib.machinery
def located(name):
    places, spec, parts = None, None, name.split(".")
    for end in range(1, len(parts) + 1):
        spec = importlib.machinery.PathFinder.find_spec(".".join(parts[:end]), places)
        if spec is None or end < len(parts) and not spec.submodule_search_locations:
            return False
        places = spec.submodule_search_locations
    return spec.origin is not None or bool(spec.submodule_search_locations)
for name in sorted(sys.modules):
    spec = getattr(sys.modules[name], "__spec__", None)
    builtin = name in sys.builtin_module_names
    if name.startswith(("__main__", "importlib._bootstrap")) or name in absent:
        continue  # the interpreter has them inside
    if builtin or located(name):
        print(name)
"""
ZYGOTE = """
import sys
sys.path += {folders!r}
sys.modules["typing_extensions"] = None
import msgspec
del sys.modules["typing_extensions"]
from stoilo.sandbox.process import child, zygote
from stoilo.sandbox.process.channel import Hello
zygote._prepare(msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Hello))
child.find_thread_setters()
absent = {{name for name, module in sys.modules.items()
    if name.startswith(("sympy", "torch._dynamo", "torch.fx.experimental.symbolic"))}}
"""
VERIFIER = """
import ast, importlib, sys
from pathlib import Path
sys.path += {folders!r}
names = ["tuf.api.serialization.json", "_strptime"]  # imported by functions of others
names += ["stoilo.executor.verifier.main"]  # the first: it leaves out parts of what comes after
seen, absent = set(), {{"google", "typing_extensions"}}  # not in its lock
while names:
    name = names.pop()
    try:
        importlib.import_module(name)
    except ImportError:
        continue
    for loaded in sorted(set(sys.modules) - seen):
        seen.add(loaded)
        file = getattr(sys.modules[loaded], "__file__", None)
        if not loaded.startswith("stoilo.") or not file or file.endswith("toml"):
            continue
        for function in ast.walk(ast.parse(Path(file).read_text())):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                for node in ast.walk(function):
                    if isinstance(node, ast.Import):
                        names += [alias.name for alias in node.names]
                    elif isinstance(node, ast.ImportFrom) and not node.level:
                        names.append(node.module)
                        names += [f"{{node.module}}.{{a.name}}" for a in node.names]
"""


def probe(program: str, data: bytes) -> list[str]:
    """Run a probe with the zygote's environment; return the names that it prints."""
    done = subprocess.run(
        [sys.executable, "-S", "-s", "-P", "-c", program + PRINT],
        input=data,
        capture_output=True,
        env=zygote_environment(),
        cwd="/",
        check=False,
    )
    if done.returncode:
        sys.exit(done.stderr.decode())
    return done.stdout.decode().split()


def list_modules(part: str) -> list[str]:
    """Return what `part` needs, by import name."""
    folders = list(library_folders())
    if part == "verifier":
        return probe(VERIFIER.format(folders=folders), b"")
    hello = Hello(
        level=load_level(part),
        job=TASK_JOB,
        preload=(),
        programs=Programs(),
        supervisor=1,
    )
    return probe(ZYGOTE.format(folders=folders), msgspec.msgpack.encode(hello))


def main() -> None:
    """Write every list."""
    for part in ("verifier", *(flavor.name for flavor in shipped_flavors())):
        file = FOLDER / f"{part}.txt"
        old = parse_contents(file.read_text("ascii")) if file.exists() else None
        lines = ["[modules]", *sorted(set(list_modules(part)))]
        for section in ("libraries", "sources", "data"):
            kept = getattr(old, section) if old else ()
            lines += [f"[{section}]", *kept] if kept else []
        file.write_text("\n".join(lines) + "\n", "ascii")


if __name__ == "__main__":
    main()
