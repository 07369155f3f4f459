"""Frozen trees by their manifest: which files, how large, with which digests.

A tree is a directory of regular files only. Its manifest is a text that fixes every byte
of it, and the SHA-256 of that text, the *tree digest*, is what a release signs:

    stoilo-tree/1 <part> <platform>
    <sha256> <size> <x or -> <path>        one line per file, sorted bytewise by path

The launcher parses the same text in C, so that the rules here are few and without choice:
one writing for each tree, no links, no directories of their own, no names that two file
systems could read differently.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stoilo.core.digests import Digest
from stoilo.core.errors import TrustError, UsageError

MANIFEST_NAME = "MANIFEST"
FORMAT = "stoilo-tree/1"
MANIFEST_BYTES = 16 << 20  # Most bytes of one manifest
FILES = 32_768  # Most files of one tree
TREE_BYTES = 4 << 30  # Most bytes of all files of a tree
_PATH_BYTES = 240
_NAME_BYTES, _PREFIX_BYTES = 100, 155  # of a ustar header
_CHUNK = 1 << 20

_PART = re.compile(r"[a-z0-9-]{1,32}")
_PLATFORM = re.compile(r"[a-z0-9_]{1,24}-linux")
_COMPONENT = re.compile(r"(?!-|\.{1,2}$)[A-Za-z0-9._+@=,~-]{1,128}")
_LINE = re.compile(r"([0-9a-f]{64}) (0|[1-9][0-9]{0,9}) ([x-]) (\S+)")
_MACHINES = {"x86_64": "x86_64", "AMD64": "x86_64", "aarch64": "aarch64"}


@dataclass(frozen=True, slots=True)
class TreeFile:
    """One file of a tree: SHA-256, size in bytes, whether it is a program, path."""

    digest: Digest
    size: int
    executable: bool
    path: str


@dataclass(frozen=True, slots=True)
class Tree:
    """A whole tree; `files` are sorted bytewise by path."""

    part: str
    platform: str
    files: tuple[TreeFile, ...]

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(file.size for file in self.files)


def platform_name(machine: str | None = None) -> str:
    """Return this machine's platform, ``x86_64-linux``, or raise ``STO-F003``.

    Args:
        machine: the processor's name as the kernel says it; default: this machine's.
    """
    name = os.uname().machine if machine is None else machine
    if not sys.platform.startswith("linux") or name not in _MACHINES:
        raise UsageError(
            "STO-F003",
            f"there are no frozen parts for {sys.platform} on {name[:40]}",
            hint="they exist for Linux on x86_64 and aarch64",
        )
    return f"{_MACHINES[name]}-linux"


def tree_digest(manifest: bytes) -> Digest:
    """Return the digest of a tree: plain SHA-256 of its manifest's bytes."""
    return Digest(hashlib.sha256(manifest).hexdigest())


def render_tree(tree: Tree) -> bytes:
    """Return the one manifest of `tree`, or raise ``STO-F001`` when it breaks a rule."""
    _check_head(tree.part, tree.platform)
    _check_files(tree.files)
    lines = [f"{FORMAT} {tree.part} {tree.platform}\n"]
    lines += [
        f"{file.digest} {file.size} {'x' if file.executable else '-'} {file.path}\n"
        for file in tree.files
    ]
    data = "".join(lines).encode("ascii")
    if len(data) > MANIFEST_BYTES:
        raise broken_tree(0, f"it is larger than {MANIFEST_BYTES:,} bytes")
    return data


def parse_tree(data: bytes) -> Tree:
    """Parse untrusted manifest bytes or raise ``STO-F001``."""
    if len(data) > MANIFEST_BYTES:
        raise broken_tree(0, f"it is larger than {MANIFEST_BYTES:,} bytes")
    if not data.endswith(b"\n"):
        raise broken_tree(0, "its last line has no end")
    try:
        head, *lines = data[:-1].decode("ascii").split("\n")
    except UnicodeDecodeError as error:
        raise broken_tree(0, "it is not plain ASCII text") from error
    words = head.split(" ")
    if len(words) != 3 or words[0] != FORMAT:  # noqa: PLR2004 - format, part, platform
        raise broken_tree(1, f"it does not begin with {FORMAT!r}, part and platform")
    _check_head(words[1], words[2])
    if len(lines) > FILES:
        raise broken_tree(0, f"it lists more than {FILES:,} files")
    files = tuple(_parse_line(line, number) for number, line in enumerate(lines, 2))
    _check_files(files)
    return Tree(words[1], words[2], files)


def _parse_line(line: str, number: int) -> TreeFile:
    match = _LINE.fullmatch(line)
    if match is None:
        raise broken_tree(number, "it is not `digest size x|- path`")
    return TreeFile(Digest(match[1]), int(match[2]), match[3] == "x", match[4])


def _check_head(part: str, platform: str) -> None:
    if not _PART.fullmatch(part):
        raise broken_tree(1, f"{part[:40]!r} is no name of a part")
    if not _PLATFORM.fullmatch(platform):
        raise broken_tree(1, f"{platform[:40]!r} is no platform")


def _check_files(files: tuple[TreeFile, ...]) -> None:
    """Refuse what would not be one tree, the same to every reader."""
    if not files:
        raise broken_tree(0, "it lists no file")
    if len(files) > FILES:
        raise broken_tree(0, f"it lists more than {FILES:,} files")
    if sum(file.size for file in files) > TREE_BYTES:
        raise broken_tree(0, f"its files hold more than {TREE_BYTES:,} bytes")
    before = ""
    for number, file in enumerate(files, 2):
        _check_path(file.path, number)
        if file.path <= before:  # ASCII: order of code points is order of bytes
            raise broken_tree(number, "paths must be sorted, each once")
        before = file.path
    folded = {file.path.lower() for file in files}
    if len(folded) != len(files):
        raise broken_tree(0, "two paths differ in upper and lower case only")
    for path in folded:
        if any(folder in folded for folder in _folders(path)):
            raise broken_tree(0, f"{path!r} lies below a file")


def _check_path(path: str, number: int) -> None:
    if path.lower() == MANIFEST_NAME.lower():
        raise broken_tree(number, f"{MANIFEST_NAME} at the top is the manifest itself")
    if not all(_COMPONENT.fullmatch(name) for name in path.split("/")):
        raise broken_tree(number, f"the path {path[:80]!r} is not allowed")
    ustar_split(path, number)


def _folders(path: str) -> Iterator[str]:
    """Yield every directory above `path`."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def ustar_split(path: str, number: int = 0) -> tuple[str, str]:
    """Return the prefix and name fields of a ustar header for `path`, or ``STO-F001``.

    A path of at most 100 bytes is a name alone; a longer one is split at the first slash
    that leaves at most 100 bytes behind it.
    """
    prefix, name = "", path
    while len(name) > _NAME_BYTES and "/" in name:
        folder, _, name = name.partition("/")
        prefix = f"{prefix}/{folder}" if prefix else folder
    too_long = len(name) > _NAME_BYTES or len(prefix) > _PREFIX_BYTES
    if too_long or len(path) > _PATH_BYTES:
        raise broken_tree(number, f"the path {path[:80]!r}… is too long")
    return prefix, name


def hash_file(path: Path) -> tuple[Digest, int]:
    """Return digest and size of the regular file at `path`; links raise ``STO-F006``."""
    try:
        descriptor = os.open(
            path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        )
    except OSError as error:
        raise _foreign(path.name, error.strerror or "it cannot be opened") from error
    state, size = hashlib.sha256(), 0
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _foreign(path.name, "it is not a regular file")
        while chunk := file.read(_CHUNK):
            state.update(chunk)
            size += len(chunk)
    return Digest(state.hexdigest()), size


def describe_tree(directory: Path, part: str, platform: str) -> Tree:
    """Hash every file below `directory`; a manifest at its top is left out.

    Args:
        directory: the tree.
        part: what it is: ``verifier`` or a flavor's name.
        platform: as `platform_name` says it.

    Raises:
        TrustError: ``STO-F006`` it holds a link, a special file or an empty directory,
            ``STO-F001`` a name is not allowed or there is too much.
    """
    files: list[TreeFile] = []
    for path in sorted(_walk(directory, ""), key=str):
        if path == MANIFEST_NAME:
            continue
        if len(files) == FILES:
            raise broken_tree(0, f"it lists more than {FILES:,} files")
        digest, size = hash_file(directory / path)
        mode = (directory / path).stat().st_mode
        files.append(TreeFile(digest, size, bool(mode & stat.S_IXUSR), path))
    tree = Tree(part, platform, tuple(files))
    render_tree(tree)
    return tree


def _walk(directory: Path, below: str) -> Iterator[str]:
    """Yield the paths of all files, relative and with slashes."""
    try:
        entries = sorted(os.scandir(directory / below), key=lambda entry: entry.name)
    except OSError as error:
        reason = error.strerror or "it cannot be read"
        raise _foreign(below or directory.name, reason) from error
    if not entries:
        raise _foreign(below or ".", "it is an empty directory")
    for entry in entries:
        path = f"{below}/{entry.name}" if below else entry.name
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(directory, path)
        elif entry.is_file(follow_symlinks=False):
            yield path
        else:
            raise _foreign(path, "it is a link or a special file")


def broken_tree(number: int, reason: str) -> TrustError:
    """Return ``STO-F001`` about a line of a manifest (0: about the whole)."""
    where = f"line {number}: " if number else ""
    return TrustError("STO-F001", f"the tree manifest is broken: {where}{reason}")


def _foreign(path: str, reason: str) -> TrustError:
    return TrustError("STO-F006", f"{path[:120]!r} does not belong in a tree: {reason}")
