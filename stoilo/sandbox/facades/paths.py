"""`pathlib`: names of files as values. Nothing here looks at a file."""

from __future__ import annotations

import posixpath
from fnmatch import fnmatchcase
from typing import Any

_Parsed = tuple[str, tuple[str, ...]]


def _plain(part: Any) -> str:
    """Return the exact text of a part, which is text or one of our paths."""
    if type(part) is PurePosixPath:
        return str(part)
    if type(part) is not str:
        raise TypeError(f"a part of a path must be str, not {type(part).__name__:.64}")
    return part


def _parse(parts: tuple[Any, ...]) -> _Parsed:
    """Return root and components; a part from the root on replaces those before it."""
    text = posixpath.join("", *map(_plain, parts))
    slashes = len(text) - len(text.lstrip("/"))
    root = "//" if slashes == 2 else "/" if slashes else ""  # noqa: PLR2004 - as POSIX has it
    return root, tuple(name for name in text.split("/") if name not in {"", "."})


class PurePosixPath:
    """``pathlib.PurePosixPath``, and what ``PurePath`` makes on every volunteer's machine."""

    __slots__ = ("__names", "__root")

    def __init__(self, *parts: Any) -> None:
        self.__root, self.__names = _parse(parts)

    def _of(self, names: tuple[str, ...]) -> PurePosixPath:
        return PurePosixPath(self.__root + "/".join(names))

    @property
    def parts(self) -> tuple[str, ...]:
        return (self.__root, *self.__names) if self.__root else self.__names

    @property
    def root(self) -> str:
        return self.__root

    anchor = root

    @property
    def drive(self) -> str:
        return ""

    @property
    def name(self) -> str:
        return self.__names[-1] if self.__names else ""

    @property
    def suffix(self) -> str:
        dot = self.name.rfind(".")
        return self.name[dot:] if 0 < dot < len(self.name) - 1 else ""

    @property
    def stem(self) -> str:
        return self.name.removesuffix(self.suffix) if self.suffix else self.name

    @property
    def suffixes(self) -> list[str]:
        if self.name.endswith("."):
            return []
        return [f".{suffix}" for suffix in self.name.lstrip(".").split(".")[1:]]

    @property
    def parent(self) -> PurePosixPath:
        return self._of(self.__names[:-1])

    @property
    def parents(self) -> tuple[PurePosixPath, ...]:
        lengths = reversed(range(len(self.__names)))
        return tuple(self._of(self.__names[:length]) for length in lengths)

    def as_posix(self) -> str:
        return str(self)

    def is_absolute(self) -> bool:
        return bool(self.__root)

    def joinpath(self, *parts: Any) -> PurePosixPath:
        return PurePosixPath(self, *parts)

    def match(self, pattern: Any) -> bool:
        # Whether the pattern fits, from the right unless it is absolute
        wanted = PurePosixPath(pattern)
        if not wanted.parts:
            raise ValueError("empty pattern")
        exact, short = bool(wanted.root), len(wanted.parts) <= len(self.parts)
        if not short or (exact and len(wanted.parts) != len(self.parts)):
            return False
        pairs = zip(reversed(self.parts), reversed(wanted.parts), strict=False)
        return all(fnmatchcase(part, shape) for part, shape in pairs)

    def is_relative_to(self, *other: Any) -> bool:
        above = PurePosixPath(*other).parts
        return self.parts[: len(above)] == above and self.is_absolute() is bool(
            above and above[0].startswith("/")
        )

    def relative_to(self, *other: Any) -> PurePosixPath:
        above = PurePosixPath(*other)
        if not self.is_relative_to(above):
            raise ValueError(f"{str(self)!r} is not in the subpath of {str(above)!r}")
        return PurePosixPath(*self.parts[len(above.parts) :])

    def with_name(self, name: Any) -> PurePosixPath:
        if not self.name:
            raise ValueError(f"{self!r} has an empty name")
        root, names = _parse((name,))
        if root or len(names) != 1 or name.endswith("/"):
            raise ValueError(f"Invalid name {name!r:.99}")
        return self._of((*self.__names[:-1], names[0]))

    def with_stem(self, stem: Any) -> PurePosixPath:
        return self.with_name(_plain(stem) + self.suffix)

    def with_suffix(self, suffix: Any) -> PurePosixPath:
        suffix = _plain(suffix)
        if "/" in suffix or suffix == "." or (suffix and not suffix.startswith(".")):
            raise ValueError(f"Invalid suffix {suffix!r:.99}")
        if not self.name:
            raise ValueError(f"{self!r} has an empty name")
        return self._of((*self.__names[:-1], self.stem + suffix))

    def __truediv__(self, part: Any) -> Any:
        known = type(part) in {PurePosixPath, str}
        return PurePosixPath(self, part) if known else NotImplemented

    def __rtruediv__(self, part: Any) -> Any:
        return PurePosixPath(part, self) if type(part) is str else NotImplemented

    def __str__(self) -> str:
        return self.__root + "/".join(self.__names) or "."

    def __repr__(self) -> str:
        return f"PurePosixPath({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        if type(other) is not PurePosixPath:
            return NotImplemented
        return self.parts == other.parts

    def __hash__(self) -> int:
        return hash(self.parts)

    def __lt__(self, other: object) -> Any:
        if type(other) is not PurePosixPath:
            return NotImplemented
        return self.parts < other.parts

    def __le__(self, other: object) -> Any:
        if type(other) is not PurePosixPath:
            return NotImplemented
        return self.parts <= other.parts


PurePosixPath.__module__ = "pathlib"


FACADES = {"pathlib": {"PurePath": PurePosixPath, "PurePosixPath": PurePosixPath}}
