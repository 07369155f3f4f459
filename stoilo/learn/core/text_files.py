"""Text files of one sample a line, read in parts.

A file is cut into ranges of bytes that begin at lines (Paracel's ``linesplit``), so that no
reader needs the whole of it. Records of a sparse matrix, ``row column value``, are dealt by
key instead: all of a row together (``fmap``), all of a column (``smap``), or blocks of both
(``fsmap``); lines that begin with an identifier become vectors (``fvec``) or sets
(``fset``) of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np

from stoilo.core.errors import UsageError
from stoilo.learn.core.data import Part, collect
from stoilo.learn.core.tensors import Array

Record = TypeVar("Record")
Triple: TypeAlias = tuple[str, str, float]  # row, column and value of a sparse matrix
Parse: TypeAlias = Callable[[str], Any]


@dataclass(frozen=True, slots=True)
class LineRange:
    """Some whole lines of a file."""

    path: Path  # the file, UTF-8
    start: int  # of the first line, bytes from the beginning
    end: int  # after the last line, bytes from the beginning

    def __iter__(self) -> Iterator[str]:
        """Yield the lines that are not blank, without their ends; reads as it goes."""
        with self.path.open("rb") as file:
            file.seek(self.start)
            while file.tell() < self.end:
                line = file.readline().decode().rstrip("\r\n")
                if line.strip():
                    yield line

    def map(self, *parses: Parse) -> Iterator[Any]:
        """Yield what the functions, one after the other, make of each line.

        Raises:
            UsageError: ``STO-T004`` quoting the line that one of them fails on.
        """
        for line in self:
            value: Any = line
            try:
                for parse in parses:
                    value = parse(value)
            except (ValueError, TypeError, LookupError) as error:
                raise UsageError(
                    "STO-T004",
                    f"{self.path.name}: the line {line[:80]!r} is not understood: {error}",
                    hint="mend the line, or give a function that reads it",
                ) from error
            yield value


def split_lines(path: Path, parts: int) -> list[LineRange]:
    """Return `parts` ranges of about equal size: together all lines, each once.

    A file of fewer lines has empty ranges.
    """
    size = path.stat().st_size
    starts = [0]
    with path.open("rb") as file:
        for part in range(1, parts):
            # One byte before: a range that begins just at a line keeps that line.
            file.seek(max(starts[-1], size * part // parts - 1))
            file.readline()  # on to the next line's beginning
            starts.append(max(starts[-1], min(file.tell(), size)))
    return [
        LineRange(path, start, end)
        for start, end in zip(starts, [*starts[1:], size], strict=True)
    ]


def read_lines(
    path: Path, parse: Callable[[str], tuple[Any, Any]], parts: int, *further: Parse
) -> list[Part]:
    """Return a file's lines in parts; each line becomes an (input, target) pair.

    Args:
        path: UTF-8 text; blank lines do not count.
        parse: makes a pair of a line: see `parse_columns`.
        parts: how many; ranges without a line are left out.
        further: transforms of the pair, first to last.

    Raises:
        UsageError: ``STO-T004`` quoting a line that is not understood; ``STO-T004``.
    """
    ranges = [list(lines.map(parse, *further)) for lines in split_lines(path, parts)]
    found = [Part(*collect(pairs)) for pairs in ranges if pairs]
    if not found:
        raise UsageError("STO-T004", f"{path.name} has no lines", hint="at least one")
    return found


def parse_columns(
    separator: str = ",", target: int = -1, kind: Callable[[str], Any] = int
) -> Callable[[str], tuple[Array, Any]]:
    """Return a parser of lines of numbers, one of which is the target.

    Args:
        separator: between numbers.
        target: index of the target's column.
        kind: makes the target of its text: a label by default.
    """

    def parse(line: str) -> tuple[Array, Any]:
        words = line.split(separator)
        found = words.pop(target)
        return np.array([float(word) for word in words]), kind(found)

    return parse


def parse_triple(line: str, separator: str | None = None) -> Triple:
    """Return row, column and value of a line; without a value it is 1."""
    first, second, *value = line.split(separator)
    (number,) = value or ["1"]
    return first, second, float(number)


def parse_vector(line: str, separator: str | None = None) -> tuple[str, Array]:
    """Return a line's identifier and the vector of the numbers behind it (``fvec``)."""
    name, *numbers = line.split(separator)
    return name, np.array([float(number) for number in numbers])


def parse_set(line: str, separator: str | None = None) -> tuple[str, frozenset[str]]:
    """Return a line's identifier and the set of the words behind it (``fset``)."""
    name, *words = line.split(separator)
    return name, frozenset(words)


def deal_by_key(
    records: Iterable[Record], parts: int, key: Callable[[Record], str]
) -> list[list[Record]]:
    """Return records in parts, all of one key in one part, the same on every computer.

    ``key=lambda t: t[0]`` keeps rows of triples together (``fmap``), ``t[1]`` columns
    (``smap``).
    """
    found: list[list[Record]] = [[] for _ in range(parts)]
    for record in records:
        found[_place(key(record), parts)].append(record)
    return found


def deal_blocks(
    triples: Iterable[Triple], rows: int, columns: int
) -> list[list[Sequence[Triple]]]:
    """Return blocks, `rows` by `columns`: a row's triples in one row of them (``fsmap``)."""
    bands = deal_by_key(triples, rows, lambda triple: triple[0])
    return [[*deal_by_key(band, columns, lambda triple: triple[1])] for band in bands]


def number_triples(
    dealt: Iterable[Sequence[Triple]],
) -> tuple[list[Part], list[str], list[str]]:
    """Return dealt triples as programs take them, and the names of rows and of columns.

    Samples are (row, column) by their places among the sorted names, targets the values; a
    part without triples is left out.
    """
    parts = [part for part in dealt if part]
    row_names = sorted({row for part in parts for row, _, _ in part})
    names = sorted({column for part in parts for _, column, _ in part})
    rows, columns = ({name: n for n, name in enumerate(s)} for s in (row_names, names))
    found = [
        Part(
            np.array([(rows[r], columns[c]) for r, c, _ in part]),
            np.array([value for _, _, value in part]),
        )
        for part in parts
    ]
    return found, row_names, names


def number_words(lines: Iterable[Iterable[str]]) -> tuple[Array, list[str]]:
    """Return lines of words as lines of their numbers, filled up with -1, and the words.

    A word's number is its place among the sorted ones.
    """
    texts = [[*line] for line in lines]
    words = sorted({word for text in texts for word in text})
    place = {word: number for number, word in enumerate(words)}
    found = np.full((len(texts), max(map(len, texts), default=0)), -1)
    for line, text in zip(found, texts, strict=True):
        line[: len(text)] = [place[word] for word in text]
    return found, words


def _place(key: str, parts: int) -> int:
    # Python's own hash differs from process to process.
    digest = hashlib.blake2b(key.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % parts
