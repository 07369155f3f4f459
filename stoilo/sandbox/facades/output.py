"""`contextlib`, `warnings`, `tqdm` and `sys`: what is shown goes where the task prints."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, Self

from stoilo.sandbox.language.rules import TASK_FILENAME
from stoilo.sandbox.language.runtime import redirect_output, restore_output
from stoilo.sandbox.language.substitutes import by_name

# `contextlib`: output redirected within the task, which has no real streams -----------


class redirect_stdout:  # noqa: N801 - the library's name
    """``contextlib.redirect_stdout`` for what the task prints."""

    __slots__ = ("_target",)

    def __init__(self, new_target: Any) -> None:
        self._target = new_target

    def __enter__(self) -> Any:
        redirect_output(self._target)
        return self._target

    def __exit__(self, *_details: object) -> None:
        restore_output()


redirect_stdout.__module__ = "contextlib"


# `warnings`: recorded warnings name the task's file or none; no other module is swapped
#
# The real recorder shows the path of the library or worker that warned: the volunteer's
# own, and another on every honest copy.


LIBRARY_FILENAME = "<library>"


class catch_warnings:  # noqa: N801 - the library's name
    """``warnings.catch_warnings`` of the real module only."""

    __slots__ = ("_inner", "_log", "_record")

    def __init__(self, *, record: bool = False, **options: Any) -> None:
        if options.pop("module", None) is not None:
            raise TypeError("catch_warnings() takes no module in a task")
        self._inner = warnings.catch_warnings(**options)
        self._record = bool(record)
        self._log: list[warnings.WarningMessage] = []

    def __enter__(self) -> list[warnings.WarningMessage] | None:
        self._inner.__enter__()
        if not self._record:
            return None
        warnings.showwarning = _keep_in(self._log)
        return self._log

    def __exit__(self, *details: object) -> None:
        self._inner.__exit__(*details)  # type: ignore[arg-type]  # passed through


def _keep_in(log: list[warnings.WarningMessage]) -> Callable[..., None]:
    def keep(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        *_more: object,
    ) -> None:
        place = filename if filename == TASK_FILENAME else LIBRARY_FILENAME
        log.append(warnings.WarningMessage(message, category, place, lineno))

    return keep


catch_warnings.__module__ = "warnings"


# `tqdm`: the shape of a progress bar, which nobody sees: it counts and shows nothing
#
# Written for tasks; the library itself is not needed anywhere.


class tqdm:  # noqa: N801 - the library's name
    """``tqdm.tqdm`` without a terminal."""

    __slots__ = ("_iterable", "desc", "disable", "n", "total")

    def __init__(
        self,
        iterable: Any = None,
        desc: str = "",
        total: Any = None,
        *_options: object,
        initial: Any = 0,
        **_more: object,
    ) -> None:
        if total is None and hasattr(iterable, "__len__"):
            total = len(iterable)
        self._iterable, self.desc, self.total = iterable, desc, total
        self.n, self.disable = initial, True

    def __iter__(self) -> Iterator[Any]:
        for item in self._iterable:
            yield item
            self.n += 1

    def __len__(self) -> int:
        return len(self._iterable) if self.total is None else int(self.total)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        return None

    def update(self, n: Any = 1) -> bool:
        self.n += n
        return False

    def reset(self, total: Any = None) -> None:
        self.n = 0
        self.total = self.total if total is None else total

    def set_description(self, desc: str = "", refresh: bool = True) -> None:
        # Set the description, with the library's colon
        del refresh
        self.desc = f"{desc}: " if desc else ""

    def set_description_str(self, desc: str = "", refresh: bool = True) -> None:
        del refresh
        self.desc = desc

    def set_postfix(self, *_values: object, **_more: object) -> None:
        pass

    set_postfix_str = refresh = clear = display = unpause = set_postfix

    def close(self) -> None:
        pass

    @classmethod
    def write(cls, s: Any, file: Any = None, end: str = "\n", **_more: object) -> None:
        # Print the text, as the library does above its bar
        text = f"{s}{end}"
        (sys.stdout if file is None else file).write(text)


def trange(*bounds: Any, **options: Any) -> tqdm:
    return tqdm(range(*bounds), **options)


tqdm.__module__ = "tqdm"


# `sys`: numbers about the machine's arithmetic, the output, and a way to stop ---------


class TaskStream:
    """``sys.stdout`` and ``sys.stderr`` of a task: what is written is printed."""

    __slots__ = ()

    def write(self, text: str) -> int:
        # Write to wherever this run's output goes
        return sys.stdout.write(text)

    def flush(self) -> None:
        pass


def _exit(status: object = None) -> NoReturn:
    raise SystemExit(status)


_SYS = {
    "argv": [TASK_FILENAME],
    "exit": _exit,
    "stderr": TaskStream(),
    "stdout": TaskStream(),
    "version": "{}.{}.{}".format(*sys.version_info[:3]),
}


FACADES = {
    "contextlib": by_name(redirect_stdout),
    "sys": _SYS,
    "tqdm": by_name(tqdm, trange),
    "tqdm.auto": by_name(tqdm, trange),
    "warnings": by_name(catch_warnings),
}
