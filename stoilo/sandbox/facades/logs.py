"""`logging`: messages of the task go where it prints; no handlers of files or sockets.

A stand-in for the part that programs use, not the library: that one keeps locks, streams
and a registry of every module's loggers, and would make a cold start longer.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from stoilo.core.levels import Level
from stoilo.sandbox.determinism import RUN

__all__ = ["build"]

LEVELS = {"NOTSET": 0, "DEBUG": 10, "INFO": 20, "WARNING": 30, "ERROR": 40}
LEVELS["CRITICAL"] = 50
_BASIC = "%(levelname)s:%(name)s:%(message)s"
_CLOCK = "%Y-%m-%d %H:%M:%S"


def get_level_name(level: Any) -> Any:  # noqa: ANN401
    """``logging.getLevelName``: a level's name by number, or its number by name."""
    if level in LEVELS:
        return LEVELS[level]
    names = {number: name for name, number in LEVELS.items()}
    return names.get(level, f"Level {level}")


def _number(level: Any) -> int:  # noqa: ANN401
    if isinstance(level, int):
        return level
    if level not in LEVELS:
        raise ValueError(f"Unknown level: {level!r:.64}")
    return LEVELS[level]


class Formatter:
    """``logging.Formatter`` in the ``%`` style."""

    def __init__(self, fmt: str | None = None, datefmt: str | None = None) -> None:
        self._form = str(fmt or "%(message)s")
        self._clock = str(datefmt or _CLOCK)

    def format(self, fields: dict[str, Any]) -> str:
        """Return one line."""
        moment = time.strftime(self._clock, time.gmtime(RUN.now))
        return self._form % (fields | {"asctime": moment})


class Handler:
    """``logging.StreamHandler``: writes lines to the output or to an object given."""

    def __init__(self, stream: Any = None) -> None:  # noqa: ANN401
        self._stream = stream
        self._form = Formatter()
        self._level = 0

    def setFormatter(self, fmt: Any) -> None:  # noqa: ANN401, N802 - the library's name
        """Choose the form of lines."""
        self._form = fmt

    def setLevel(self, level: Any) -> None:  # noqa: ANN401, N802 - the library's name
        """Leave out what is below `level`."""
        self._level = _number(level)

    def handle(self, number: int, fields: dict[str, Any]) -> None:
        """Write one message."""
        if number >= self._level:
            (self._stream or sys.stdout).write(self._form.format(fields) + "\n")


class NullHandler(Handler):
    """``logging.NullHandler``."""

    def handle(self, number: int, fields: dict[str, Any]) -> None:
        """Write nothing."""


class Logger:
    """``logging.Logger``: the root, or one of its dotted children."""

    def __init__(self, name: str, parent: Logger | None) -> None:
        self.name, self.parent = name, parent
        self.level = 30 if parent is None else 0
        self.handlers: list[Any] = []
        self.propagate = True

    def setLevel(self, level: Any) -> None:  # noqa: ANN401, N802 - the library's name
        """Leave out what is below `level`."""
        self.level = _number(level)

    def getEffectiveLevel(self) -> int:  # noqa: N802 - the library's name
        """Return the level of the nearest logger that has one."""
        logger: Logger | None = self
        while logger is not None:
            if logger.level:
                return logger.level
            logger = logger.parent
        return 0

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - the library's name
        """Whether a message of `level` would be written."""
        return level >= self.getEffectiveLevel()

    def addHandler(self, hdlr: Any) -> None:  # noqa: ANN401, N802 - the library's name
        """Write messages to `hdlr` too."""
        if hdlr not in self.handlers:
            self.handlers.append(hdlr)

    def removeHandler(self, hdlr: Any) -> None:  # noqa: ANN401, N802 - the library's name
        """Write no more messages to `hdlr`."""
        if hdlr in self.handlers:
            self.handlers.remove(hdlr)

    def hasHandlers(self) -> bool:  # noqa: N802 - the library's name
        """Whether this logger or one above it has handlers."""
        return bool(self._all_handlers())

    def getChild(self, suffix: str) -> Logger:  # noqa: N802 - the library's name
        """Return the logger ``name.suffix``."""
        return get_logger(suffix if self.parent is None else f"{self.name}.{suffix}")

    def _all_handlers(self) -> list[Any]:
        found: list[Any] = []
        logger: Logger | None = self
        while logger is not None:
            found += logger.handlers
            logger = logger.parent if logger.propagate else None
        return found

    def log(self, level: Any, msg: object, *args: Any, **_options: Any) -> None:  # noqa: ANN401
        """Write ``msg % args`` if `level` is enabled."""
        number = _number(level)
        if not self.isEnabledFor(number):
            return
        named = args[0] if len(args) == 1 and isinstance(args[0], dict) else args
        text = str(msg) % named if args else str(msg)
        fields = {"levelname": get_level_name(number), "name": self.name}
        fields |= {"message": text, "levelno": number, "module": "<task>"}
        handlers = self._all_handlers()
        for handler in handlers or ([Handler()] if number >= LEVELS["WARNING"] else []):
            handler.handle(number, fields)

    def debug(self, msg: object, *args: Any, **options: Any) -> None:  # noqa: ANN401
        """Log at DEBUG."""
        self.log(LEVELS["DEBUG"], msg, *args, **options)

    def info(self, msg: object, *args: Any, **options: Any) -> None:  # noqa: ANN401
        """Log at INFO."""
        self.log(LEVELS["INFO"], msg, *args, **options)

    def warning(self, msg: object, *args: Any, **options: Any) -> None:  # noqa: ANN401
        """Log at WARNING."""
        self.log(LEVELS["WARNING"], msg, *args, **options)

    def error(self, msg: object, *args: Any, **options: Any) -> None:  # noqa: ANN401
        """Log at ERROR; tracebacks, which `exception` adds elsewhere, are left out."""
        self.log(LEVELS["ERROR"], msg, *args, **options)

    exception = error

    def critical(self, msg: object, *args: Any, **options: Any) -> None:  # noqa: ANN401
        """Log at CRITICAL."""
        self.log(LEVELS["CRITICAL"], msg, *args, **options)


ROOT = Logger("root", None)
_loggers: dict[str, Logger] = {}


def get_logger(name: str | None = None) -> Logger:
    """``logging.getLogger``."""
    if not name or name == "root":
        return ROOT
    name = str(name)
    if name not in _loggers:
        parent = get_logger(name.rpartition(".")[0])
        _loggers[name] = Logger(name, parent)
    return _loggers[name]


def basic_config(
    *,
    level: Any = None,  # noqa: ANN401
    format: str = _BASIC,  # noqa: A002 - the library's name
    datefmt: str | None = None,
    stream: Any = None,  # noqa: ANN401
    handlers: Any = None,  # noqa: ANN401
    force: bool = False,
    **others: Any,  # noqa: ANN401
) -> None:
    """``logging.basicConfig``, without files."""
    if "filename" in others:
        raise FileNotFoundError("a task has no files to log to")
    if level is not None:
        ROOT.setLevel(level)
    if ROOT.handlers and not force:
        return
    ROOT.handlers = list(handlers or [Handler(stream)])
    for handler in ROOT.handlers:
        handler.setFormatter(Formatter(format, datefmt))


for _kind in (Formatter, Handler, NullHandler, Logger):
    _kind.__module__ = "logging"


def build(level: Level) -> dict[str, object]:
    """Return what the level lists of ``logging``; the library is not imported."""
    del level
    words = ("debug", "info", "warning", "error", "exception", "critical", "log")
    return {
        **LEVELS,
        **{word: getattr(ROOT, word) for word in words},
        "Formatter": Formatter,
        "Logger": Logger,
        "NullHandler": NullHandler,
        "StreamHandler": Handler,
        "basicConfig": basic_config,
        "getLevelName": get_level_name,
        "getLogger": get_logger,
    }
