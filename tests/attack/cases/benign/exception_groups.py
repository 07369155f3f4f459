# /// stoilo-case
# idea = "errors"
# ///
"""Retries, chained causes, groups of errors, finally order, own hierarchies, warnings."""
import warnings
from contextlib import ExitStack


class FitError(Exception):
    def __init__(self, message, *, step):
        super().__init__(message)
        self.step = step

    def __str__(self):
        return f"{self.args[0]} (step {self.step})"


class Diverged(FitError):
    pass


def retry(f, times):
    errors = []
    for attempt in range(times):
        try:
            return f(attempt)
        except (ValueError, FitError) as error:
            error.add_note(f"attempt {attempt}")
            errors.append(error)
    raise ExceptionGroup("all attempts failed", errors)


def flaky(attempt):
    if attempt == 0:
        raise ValueError("bad start")
    try:
        [][attempt]
    except IndexError as inner:
        raise Diverged("no luck", step=attempt) from inner


class Resource:
    log = []

    def __init__(self, name):
        self.name = name

    def __enter__(self):
        self.log.append(f"+{self.name}")
        return self

    def __exit__(self, kind, value, tb):
        self.log.append(f"-{self.name}:{kind.__name__ if kind else ''}")
        return kind is KeyError


def run(kwargs):
    out = {}
    try:
        retry(flaky, 3)
    except ExceptionGroup as group:
        out["group"] = [type(e).__name__ for e in group.exceptions]
        out["notes"] = len(group.exceptions)
        matched, rest = group.split(FitError)
        out["split"] = [str(e) for e in matched.exceptions], len(rest.exceptions)
        out["cause"] = type(matched.exceptions[0].__cause__).__name__
    with ExitStack() as stack:
        for name in "abc":
            stack.enter_context(Resource(name))
        stack.callback(Resource.log.append, "callback")
        raise KeyError("swallowed")
    out["log"] = Resource.log
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.warn("careful", RuntimeWarning)
    out["warned"] = [w.category.__name__ for w in caught]
    try:
        try:
            1 / 0
        finally:
            out["finally"] = True
    except (IOError, ArithmeticError) as error:
        out["error"] = repr(error)
    return out
