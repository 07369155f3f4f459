"""Write stoilo/flavors/contents from what really is imported.

For a level: what a zygote has loaded when it is ready for it. For the verifier: what its
program imports, with what our own modules import inside functions. Shared libraries,
sources and data files of these are kept as they are; a build says what it misses there.
For a described library: what a zygote loads, maps and reads for it beyond its level, with
the wheels alone that the smallest shipped flavor with it has.
A difference is reviewed like any other change: every volunteer runs it.
"""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from pathlib import Path

import msgspec

from stoilo.core.frozen_tree import platform_name
from stoilo.core.levels import Level
from stoilo.core.libraries import Library, add_libraries, load_libraries
from stoilo.flavors.contents import PLATFORM_DATA, Contents, library_stem, load_contents
from stoilo.flavors.lock import load_lock, normal_name, parse_lock
from stoilo.flavors.manifest import held_libraries, shipped_flavors
from stoilo.policies.levels import level_names, load_level
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
WATCH = """
import sys
from importlib.machinery import PathFinder
hidden, opened = set({hidden!r}), set()
class Visible(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        hides = name.partition(".")[0] in hidden
        return None if hides else PathFinder.find_spec(name, path, target)
sys.meta_path = [Visible if one is PathFinder else one for one in sys.meta_path]
def watch(event, arguments):
    if event != "open":
        return
    frame, readers = sys._getframe(1), set()
    own = "importlib" in frame.f_code.co_filename  # what an import itself reads is a module
    while frame is not None:
        readers |= {{frame.f_code.co_filename.rpartition("/")[2], frame.f_code.co_name}}
        frame = frame.f_back
    # those that describe where code stands do without its text
    if not own and not readers & {{"traceback.py", "getframeinfo"}}:
        opened.add(str(arguments[0]))
sys.addaudithook(watch)
"""
FILES = """
for path in sorted(opened.copy()):
    print("/opened", path)
for path in sorted({line.split()[-1] for line in open("/proc/self/maps")}):
    print("/mapped", path)
for name, module in sorted(sys.modules.items()):
    print("/source", name, getattr(module, "__file__", None))
"""
SECTIONS = tuple(one.name for one in fields(Contents))
SYSTEM = {"ld-linux-x86-64", "libc", "libdl", "libm", "libpthread", "librt", "libutil"}
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
    """Run a probe with the zygote's environment; return the lines that it prints."""
    done = subprocess.run(
        [sys.executable, "-S", "-s", "-P", "-c", program],
        input=data,
        capture_output=True,
        env=zygote_environment(),
        cwd="/",
        check=False,
    )
    if done.returncode:
        sys.exit(done.stderr.decode())
    return done.stdout.decode().splitlines()


def encode_hello(level: Level) -> bytes:
    """Return what a zygote for tasks at `level` is told."""
    hello = Hello(
        level=level, job=TASK_JOB, preload=(), programs=Programs(), supervisor=1
    )
    return msgspec.msgpack.encode(hello)


def list_modules(part: str) -> list[str]:
    """Return what the verifier or a level needs, by import name."""
    folders = list(library_folders())
    if part == "verifier":
        return probe(VERIFIER.format(folders=folders) + PRINT, b"")
    hello = encode_hello(load_level(part))
    return probe(ZYGOTE.format(folders=folders) + PRINT, hello)


def list_library(library: Library, level: Contents) -> Contents:
    """Return what `library` adds to its level, whose contents are `level`."""
    program = WATCH.format(hidden=sorted(hidden_names(library)))
    program += ZYGOTE.format(folders=list(library_folders()))
    if library.name == "sympy":
        program += "absent = {name for name in absent if name[:5] != 'sympy'}\n"
    hello = encode_hello(add_libraries(load_level(library.level), [library]))
    lines = probe(program + PRINT + FILES, hello)
    rows = [line.split(" ", 2) for line in lines if line.startswith("/")]
    mapped = {Path(row[1]).name for row in rows if row[0] == "/mapped"}
    files = {row[2]: row[1] for row in rows if row[0] == "/source"}
    opened = [row[1] for row in rows if row[0] == "/opened"]
    modules = [line for line in lines if not line.startswith("/")]
    found = Contents(
        tuple(PLATFORM_DATA if n.startswith(PLATFORM_DATA) else n for n in modules),
        tuple(library_stem(name) for name in mapped if is_library(name)),
        tuple(files[path] for path in opened if path in files),
        tuple(data_paths(path for path in opened if path not in files)),
    )
    ours = {name: set(getattr(level, name)) for name in SECTIONS}
    ours["libraries"] |= SYSTEM
    rest = (set(getattr(found, name)) - ours[name] for name in SECTIONS)
    return Contents(*(tuple(sorted(one)) for one in rest))


def is_library(name: str) -> bool:
    """Whether a mapped file is a shared library, and no extension module."""
    return (
        bool(re.fullmatch(r"lib.*\.so(\.[0-9.]+)?", name)) and ".cpython-" not in name
    )


def data_paths(opened: Iterable[str]) -> Iterator[str]:
    """Yield those of the files that lie below an import root, from there."""
    for path in map(Path, opened):
        below = [
            path.relative_to(f) for f in library_folders() if path.is_relative_to(f)
        ]
        is_data = path.suffix not in {".py", ".pyc"} and path.is_file()
        if below and is_data and not below[0].parts[0].endswith(".dist-info"):
            yield below[0].as_posix()


def hidden_names(library: Library) -> set[str]:
    """Return the import names here that the library's smallest flavor does not hold."""
    flavor = next(one for one in shipped_flavors() if library in held_libraries(one))
    lock = parse_lock(load_lock(flavor.name, platform_name()))
    held = {"stoilo", *(wheel.name for wheel in lock.wheels)}
    names = importlib.metadata.packages_distributions()
    return {
        name
        for name, givers in names.items()
        if not held & {normal_name(giver) for giver in givers}
    }


def write_list(name: str, contents: Contents) -> None:
    """Write one committed list."""
    lines = []
    for section in SECTIONS:
        entries = getattr(contents, section)
        lines += [f"[{section}]", *entries] if entries else []
    (FOLDER / f"{name}.txt").write_text("\n".join(lines) + "\n", "ascii")


def shipped_libraries() -> list[Library]:
    """Return the described libraries that a shipped flavor opens, by name."""
    found = {one.name for flavor in shipped_flavors() for one in held_libraries(flavor)}
    return [*load_libraries(sorted(found))]


def main() -> None:
    """Write every list, or those alone of the libraries that are named."""
    for part in ("verifier", *level_names()) if not sys.argv[1:] else ():
        old = load_contents(part)
        modules = tuple(sorted(set(list_modules(part))))
        write_list(part, replace(old, modules=modules))
    for library in shipped_libraries():
        if library.name in sys.argv[1:] or not sys.argv[1:]:
            found = list_library(library, load_contents(library.level))
            write_list(f"library-{library.name}", found)


if __name__ == "__main__":
    main()
