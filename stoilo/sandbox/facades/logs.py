"""`logging`: messages of the task go where it prints; no handlers of files or sockets.

A stand-in for the part that programs use, not the library: that one keeps locks, streams
and a registry of every module's loggers, and would make a cold start longer.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from stoilo.sandbox.language.runtime import RUN
from stoilo.sandbox.language.substitutes import by_name

LEVELS = {"NOTSET": 0, "DEBUG": 10, "INFO": 20, "WARNING": 30, "ERROR": 40}
LEVELS["CRITICAL"] = 50
_BASIC = "%(levelname)s:%(name)s:%(message)s"
_CLOCK = "%Y-%m-%d %H:%M:%S"


def get_level_name(level: Any) -> Any:
    if level in LEVELS:
        return LEVELS[level]
    names = {number: name for name, number in LEVELS.items()}
    return names.get(level, f"Level {level}")


def _number(level: Any) -> int:
    if isinstance(level, int):
        return level
    if level not in LEVELS:
        raise ValueError(f"Unknown level: {level!r:.64}")
    return LEVELS[level]


class LogRecord:
    """``logging.LogRecord``: one message, without the paths of who logged it."""

    def __init__(self, name: str, level: int, msg: object, args: Any) -> None:
        self.name, self.levelno, self.levelname = name, level, get_level_name(level)
        self.msg, self.args, self.module = msg, args, "<task>"

    def getMessage(self) -> str:  # noqa: N802 - the library's name
        text = str(self.msg)
        return str(text % self.args) if self.args else text


class Formatter:
    """``logging.Formatter`` in the ``%`` style."""

    def __init__(self, fmt: str | None = None, datefmt: str | None = None) -> None:
        self._fmt = str(fmt or "%(message)s")
        self._datefmt = str(datefmt or _CLOCK)

    def formatTime(self, record: Any, datefmt: str | None = None) -> str:  # noqa: N802 - the library's name
        del record
        return time.strftime(datefmt or self._datefmt, time.gmtime(RUN.now))

    def format(self, record: Any) -> str:
        fields = {
            "name": record.name,
            "levelno": record.levelno,
            "levelname": record.levelname,
            "module": record.module,
            "message": record.getMessage(),
            "asctime": self.formatTime(record),
        }
        return str(self._fmt % fields)


def _as(kind: type, value: Any) -> Any:
    """Return `value` if it is a `kind` of ours or of the task.

    Anything else with such a method is no good: text has a ``format`` too, which reads
    attributes.
    """
    if not isinstance(value, kind):
        raise TypeError(f"logging needs a {kind.__name__} here, not {value!r:.64}")
    return value


class Handler:
    """``logging.Handler``: a task's own class says in ``emit`` where records go."""

    def __init__(self, level: Any = 0) -> None:
        self.level = _number(level)
        self.formatter: Any = Formatter()

    def setFormatter(self, fmt: Any) -> None:  # noqa: N802 - the library's name
        self.formatter = _as(Formatter, fmt)

    def setLevel(self, level: Any) -> None:  # noqa: N802 - the library's name
        self.level = _number(level)

    def format(self, record: Any) -> str:
        return str(_as(Formatter, self.formatter).format(record))

    def emit(self, record: Any) -> None:
        raise NotImplementedError("emit must be implemented by Handler subclasses")

    def handle(self, record: Any) -> None:
        if record.levelno >= self.level:
            self.emit(record)


class StreamHandler(Handler):
    """``logging.StreamHandler``: writes lines to the output or to an object given."""

    def __init__(self, stream: Any = None) -> None:
        super().__init__()
        self.stream = stream

    def emit(self, record: Any) -> None:
        (self.stream or sys.stdout).write(self.format(record) + "\n")


class NullHandler(Handler):
    """``logging.NullHandler``."""

    def handle(self, record: Any) -> None:
        pass


class Logger:
    """``logging.Logger``: the root, or one of its dotted children."""

    def __init__(self, name: str, parent: Logger | None) -> None:
        self.name, self.parent = name, parent
        self.level = 30 if parent is None else 0
        self.handlers: list[Any] = []
        self.propagate = True

    def setLevel(self, level: Any) -> None:  # noqa: N802 - the library's name
        self.level = _number(level)

    def getEffectiveLevel(self) -> int:  # noqa: N802 - the library's name
        logger: Logger | None = self
        while logger is not None:
            if logger.level:
                return logger.level
            logger = logger.parent
        return 0

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - the library's name
        return level >= self.getEffectiveLevel()

    def addHandler(self, hdlr: Any) -> None:  # noqa: N802 - the library's name
        if hdlr not in self.handlers:
            self.handlers.append(hdlr)

    def removeHandler(self, hdlr: Any) -> None:  # noqa: N802 - the library's name
        if hdlr in self.handlers:
            self.handlers.remove(hdlr)

    def hasHandlers(self) -> bool:  # noqa: N802 - the library's name
        return bool(self._all_handlers())

    def getChild(self, suffix: str) -> Logger:  # noqa: N802 - the library's name
        return get_logger(suffix if self.parent is None else f"{self.name}.{suffix}")

    def _all_handlers(self) -> list[Any]:
        found: list[Any] = []
        logger: Logger | None = self
        while logger is not None:
            found += logger.handlers
            logger = logger.parent if logger.propagate else None
        return found

    def log(self, level: Any, msg: object, *args: Any, **_options: Any) -> None:
        number = _number(level)
        if not self.isEnabledFor(number):
            return
        named = args[0] if len(args) == 1 and isinstance(args[0], dict) else args
        record = LogRecord(self.name, number, msg, named)
        last = [StreamHandler()] if number >= LEVELS["WARNING"] else []
        for handler in self._all_handlers() or last:
            _as(Handler, handler).handle(record)

    def debug(self, msg: object, *args: Any, **options: Any) -> None:
        self.log(LEVELS["DEBUG"], msg, *args, **options)

    def info(self, msg: object, *args: Any, **options: Any) -> None:
        self.log(LEVELS["INFO"], msg, *args, **options)

    def warning(self, msg: object, *args: Any, **options: Any) -> None:
        self.log(LEVELS["WARNING"], msg, *args, **options)

    def error(self, msg: object, *args: Any, **options: Any) -> None:
        # Log at ERROR; tracebacks, which `exception` adds elsewhere, are left out
        self.log(LEVELS["ERROR"], msg, *args, **options)

    exception = error

    def critical(self, msg: object, *args: Any, **options: Any) -> None:
        self.log(LEVELS["CRITICAL"], msg, *args, **options)


ROOT = Logger("root", None)
_loggers: dict[str, Logger] = {}


def get_logger(name: str | None = None) -> Logger:
    if not name or name == "root":
        return ROOT
    name = str.__str__(str(name))
    if name not in _loggers:
        parent = get_logger(name.rpartition(".")[0])
        _loggers[name] = Logger(name, parent)
    return _loggers[name]


def basic_config(
    *,
    level: Any = None,
    format: str = _BASIC,  # noqa: A002 - the library's name
    datefmt: str | None = None,
    stream: Any = None,
    handlers: Any = None,
    force: bool = False,
    **others: Any,
) -> None:
    # ``logging.basicConfig``, without files
    if "filename" in others:
        raise FileNotFoundError("a task has no files to log to")
    if level is not None:
        ROOT.setLevel(level)
    if ROOT.handlers and not force:
        return
    ROOT.handlers = list(handlers or [StreamHandler(stream)])
    for handler in ROOT.handlers:
        _as(Handler, handler).setFormatter(Formatter(format, datefmt))


for _kind in (Formatter, Handler, StreamHandler, NullHandler, LogRecord, Logger):
    _kind.__module__ = "logging"


# The library is not imported.
_WORDS = ("debug", "info", "warning", "error", "exception", "critical", "log")
FACADES = {
    "logging": {
        **LEVELS,
        **{word: getattr(ROOT, word) for word in _WORDS},
        **by_name(Formatter, Handler, LogRecord, Logger, NullHandler, StreamHandler),
        "basicConfig": basic_config,
        "getLevelName": get_level_name,
        "getLogger": get_logger,
    }
}
