"""A project's config.xml: what it says, and edits of its text that touch nothing else.

BOINC's own programs rewrite the file, people edit it by hand, and comments in it matter to
them; so a value is replaced in place and everything around it stays, byte by byte. An edit
is parsed again: where the file then does not say what was wanted, nothing is written.
Trust: the file is the operator's own; it is bounded all the same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from stoilo.core.boinc.xml import Element, XmlBounds, escape, parse_xml
from stoilo.core.errors import TrustError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


CONFIG_BYTES: Final = 256 * 1024  # real ones have some 4 KiB
_BOUNDS: Final = XmlBounds(CONFIG_BYTES, depth=8, elements=5000)
_LARGEST_FANOUT: Final = 65_536
_COMMENT: Final = re.compile(r"<!--.*?-->", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Daemon:
    """One ``<daemon>``: a command that ``bin/start`` keeps a process of."""

    cmd: str  # its command line
    output: str = ""  # name of its log; empty: the program's, with ``.log``
    pid_file: str = ""  # name of the file with its process; empty: the program's
    lock_file: str = ""  # name of its lock; empty: the program's
    host: str = ""  # short name of the machine that it runs on; empty: the project's
    disabled: bool = False  # it is not started

    @property
    def words(self) -> tuple[str, ...]:
        """Its command line, cut at spaces."""
        return tuple(self.cmd.split())

    @property
    def program(self) -> str:
        """Base name of its program, empty without one."""
        return self.words[0].rpartition("/")[2] if self.words else ""

    def value_of(self, option: str) -> str:
        """Return what follows ``--option`` (BOINC takes ``-option`` too), or nothing."""
        for word, value in zip(self.words, self.words[1:], strict=False):
            if word.startswith("-") and word.lstrip("-") == option:
                return value
        return ""

    def has(self, option: str) -> bool:
        """Whether ``--option`` is in its command line."""
        return any(
            word.startswith("-") and word.lstrip("-") == option for word in self.words
        )

    @property
    def pid_name(self) -> str:
        """Name of the file with its process."""
        return self.pid_file or f"{self.program}.pid"

    @property
    def log_name(self) -> str:
        """Name of its log."""
        return self.output or f"{self.program}.log"


@dataclass(frozen=True, slots=True)
class ConfigText:
    """What a config.xml says."""

    # never shown: the database's password is among them
    # tag inside ``<config>`` → its text; the first where one is repeated
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    daemons: tuple[Daemon, ...] = ()  # in their order

    def text(self, tag: str) -> str:
        """Return a setting, empty where it is not there."""
        return self.settings.get(tag, "").strip()

    def flag(self, tag: str) -> bool:
        """Return a setting as BOINC reads a yes or no: there, and not 0."""
        return tag in self.settings and self.text(tag) != "0"

    def number(self, tag: str, default: float = 0.0) -> float:
        """Return a setting as a number, `default` where it is none."""
        try:
            return float(self.text(tag))
        except ValueError:
            return default


def read_config(data: bytes) -> ConfigText:
    """Return what the bytes of a config.xml say.

    Raises:
        TrustError: ``STO-B001``.
    """
    try:
        root = parse_xml(data, _BOUNDS)
        config = _config_of(root)
    except TrustError as error:
        raise TrustError("STO-B001", f"config.xml: {error.message}") from error
    settings: dict[str, str] = {}
    for child in config.children:
        settings.setdefault(child.tag, child.text)
    listed = root.find("daemons")
    daemons = () if listed is None else tuple(map(_daemon, listed.every("daemon")))
    return ConfigText(settings, daemons)


def _config_of(root: Element) -> Element:
    """Return ``<config>``; raises ``STO-X030``."""
    config = root.find("config")
    if root.tag != "boinc" or config is None:
        raise TrustError("STO-X030", "there is no <boinc><config>")
    # a number out of range would have us look for files in the wrong folders
    if not 0 <= config.integer("uldl_dir_fanout") <= _LARGEST_FANOUT:
        raise TrustError("STO-X030", "uldl_dir_fanout makes no sense")
    return config


def _daemon(element: Element) -> Daemon:
    said = {child.tag: child.text for child in element.children}
    return Daemon(
        cmd=said.get("cmd", ""),
        output=said.get("output", ""),
        pid_file=said.get("pid_file", ""),
        lock_file=said.get("lock_file", ""),
        host=said.get("host", ""),
        disabled=said.get("disabled", "0") not in {"0", ""},
    )


def edit_config(
    data: bytes,
    settings: Mapping[str, str],
    replaced: Iterable[tuple[Daemon, Daemon]] = (),
    added: Iterable[Daemon] = (),
) -> bytes:
    """Return a config.xml with other settings and daemons, and all else as it is.

    Args:
        data: the file.
        settings: tag → the value that it shall have.
        replaced: daemons that are there, each with what stands in its place.
        added: daemons that come behind the others.

    Raises:
        TrustError: ``STO-B001`` unreadable.
        UsageError: ``STO-B021`` written in a way that the wanted
            text cannot be put into.
    """
    replaced, added = tuple(replaced), tuple(added)
    wanted = _wanted(read_config(data), settings, replaced, added)
    text = data.decode("utf-8", "surrogateescape")
    for tag, value in settings.items():
        text = _set(text, tag, value)
    for old, new in replaced:
        text = _replace_daemon(text, old, new)
    for daemon in added:
        text = _insert(text, "daemons", _render(daemon))
    edited = text.encode("utf-8", "surrogateescape")
    if read_config(edited) != wanted:
        raise UsageError("STO-B021", "config.xml cannot be edited without a risk")
    return edited


def _wanted(
    was: ConfigText,
    settings: Mapping[str, str],
    replaced: Iterable[tuple[Daemon, Daemon]],
    added: Iterable[Daemon],
) -> ConfigText:
    instead = dict(replaced)
    daemons = tuple(instead.get(daemon, daemon) for daemon in was.daemons)
    return ConfigText({**was.settings, **settings}, (*daemons, *added))


def _set(text: str, tag: str, value: str) -> str:
    start, end = _inside(text, "config")
    pattern = re.compile(rf"<{tag}\s*/>|<{tag}>[^<]*</{tag}>")
    element = f"<{tag}>{escape(value)}</{tag}>"
    for match in _outside_comments(text, pattern, start, end):
        return text[: match.start()] + element + text[match.end() :]
    return _insert(text, "config", element)


def _replace_daemon(text: str, old: Daemon, new: Daemon) -> str:
    start, end = _inside(text, "daemons")
    pattern = re.compile(r"<daemon>.*?</daemon>", re.DOTALL)
    for match in _outside_comments(text, pattern, start, end):
        if _daemon(parse_xml(match[0].encode(errors="replace"), _BOUNDS)) == old:
            return text[: match.start()] + _render(new) + text[match.end() :]
    raise UsageError("STO-B021", f"the daemon {old.program} cannot be edited")


def _insert(text: str, parent: str, element: str) -> str:
    end = _inside(text, parent)[1]
    return f"{text[:end].rstrip()}\n        {element}\n    {text[end:]}"


def _inside(text: str, tag: str) -> tuple[int, int]:
    pattern = re.compile(rf"<{tag}>(?P<inner>.*?)</{tag}>", re.DOTALL)
    for match in _outside_comments(text, pattern, 0, len(text)):
        return match.start("inner"), match.end("inner")
    raise UsageError("STO-B021", f"config.xml has no <{tag}> that can be written into")


def _outside_comments(
    text: str, pattern: re.Pattern[str], start: int, end: int
) -> Iterator[re.Match[str]]:
    comments = [match.span() for match in _COMMENT.finditer(text)]
    for match in pattern.finditer(text, start, end):
        if not any(first <= match.start() < last for first, last in comments):
            yield match


def _render(daemon: Daemon) -> str:
    parts = [
        ("cmd", daemon.cmd),
        ("output", daemon.output),
        ("pid_file", daemon.pid_file),
        ("lock_file", daemon.lock_file),
        ("host", daemon.host),
        ("disabled", "1" if daemon.disabled else ""),
    ]
    inner = "".join(f"<{tag}>{escape(text)}</{tag}>" for tag, text in parts if text)
    return f"<daemon>{inner}</daemon>"
