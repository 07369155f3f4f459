"""joblib on volunteers: ``import stoilo.joblib`` registers the backend ``"stoilo"``.

    with joblib.parallel_config("stoilo", conn=conn):
        GridSearchCV(model, grid).fit(X, y)

Only source and data travel, so a call does when its function is the researcher's own or one
that a level or a described library hands out. Of what libraries dispatch by private
functions, scikit-learn's ``_fit_and_score`` (searches, ``cross_validate`` and
``cross_val_score``, ``validation_curve``, ``learning_curve``) is said by public ones
(`stoilo.learn.kernels.search`); the rest runs here, in threads, and a warning names it.
"""

from __future__ import annotations

import functools
import time
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import joblib  # type: ignore[import-untyped]  # it ships no types
from joblib.parallel import ParallelBackendBase  # type: ignore[import-untyped]  # same

from stoilo.client.capture.expressions import builtin_name
from stoilo.client.capture.library import (
    is_handed_out,
    is_library_module,
    library_path,
)
from stoilo.client.futures import Executor
from stoilo.core.errors import UsageError

if TYPE_CHECKING:
    from stoilo.client.connection import Where
    from stoilo.client.sync import SyncConnection

__all__ = ["StoiloBackend"]

# What joblib sends ahead is twice that; nobody here knows how many hosts there are
MANY: Final = 64

# How long calls are collected that may share a task, s
COLLECT_S: Final = 0.05

# scikit-learn's settings under which a fit elsewhere is another fit, as they are there
_SETTINGS = {
    "array_api_dispatch": False,
    "enable_metadata_routing": False,
    "transform_output": "default",
}


@dataclass(frozen=True, slots=True)
class _Call:
    """One call as it travels, and what makes its value from what comes back."""

    function: Callable[..., Any]
    values: dict[str, Any]
    is_spread: bool = True  # called as ``function(*args, **kwargs)``
    finish: Callable[[Any], Any] = field(default=lambda value: value)


@dataclass(eq=False, slots=True)
class _Batch:
    """joblib's batch: it ends when all of its calls have."""

    calls: list[_Call]
    future: Future[list[Any]]
    ends: list[Future[Any]]  # of each call

    def end(self) -> None:
        """Take the values, or the first error, once all are there."""
        if self.future.done() or not all(end.done() for end in self.ends):
            return
        try:
            pairs = zip(self.calls, self.ends, strict=True)
            self.future.set_result([call.finish(end.result()) for call, end in pairs])
        except BaseException as error:  # noqa: BLE001 - joblib raises it where it waits
            self.future.set_exception(error)


class StoiloBackend(ParallelBackendBase):  # type: ignore[misc]  # untyped
    """Calls of `joblib.Parallel` as tasks; calls that come together share tasks.

    Args:
        conn: as for `stoilo.Executor`; so are further options (``flavor``, ``level``,
            ``limits``, ``redundancy_options``).
        nesting_level: joblib's.
        inner_max_num_threads: joblib's; runs have one thread whatever it says.
    """

    supports_retrieve_callback = True
    default_n_jobs = -1

    def __init__(
        self,
        conn: SyncConnection | Where = None,
        *,
        nesting_level: int | None = None,
        inner_max_num_threads: int | None = None,
        **options: Any,  # noqa: ANN401 - the executor's
    ) -> None:
        super().__init__(nesting_level, inner_max_num_threads)
        self._make = functools.partial(Executor, conn, **options)
        self._executor: Executor | None = None
        self._desk: ThreadPoolExecutor | None = None  # collects, sends, ends batches
        self._home: ThreadPoolExecutor | None = None
        self._waiting: list[_Batch] = []
        self._named: set[str] = set()  # what a warning was given about

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """Return how many calls joblib shall think run at once; 1 stays at home."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        return MANY if n_jobs is None or n_jobs < 0 else n_jobs

    def submit(self, func: Any, callback: Any = None) -> Future[list[Any]]:  # noqa: ANN401
        """Send a batch of joblib's, or run it here; called back with its future."""
        future: Future[list[Any]] = Future()
        try:
            calls = [_call_of(*item) for item in func.items]
        except _StaysError as reason:
            self._warn(str(reason))
            self._home = self._home or ThreadPoolExecutor()
            future = self._home.submit(func)
        else:
            self._waiting.append(_Batch(calls, future, [Future() for _ in calls]))
            self._desk = self._desk or ThreadPoolExecutor(1)
            self._desk.submit(self._send)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def _warn(self, text: str) -> None:
        if text not in self._named:
            self._named.add(text)
            warnings.warn(text, RuntimeWarning, stacklevel=3)

    def retrieve_result_callback(self, out: Future[list[Any]]) -> list[Any]:
        """Return a batch's values; raises its error."""
        return out.result()

    def terminate(self) -> None:
        """Let go of what one use of `joblib.Parallel` needed."""
        self._stop(cancel=False)

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Cancel what runs, also at the server; the next call starts anew."""
        del ensure_ready
        self._stop(cancel=True)

    def _stop(self, *, cancel: bool) -> None:
        self._waiting.clear()
        for pool in (self._executor, self._desk, self._home):
            if pool is not None:
                pool.shutdown(wait=False, cancel_futures=cancel)
        self._executor = self._desk = self._home = None

    def _send(self) -> None:
        """Send what has come together, calls of one function as one map."""
        if self._waiting:
            time.sleep(COLLECT_S)
        waiting, self._waiting = self._waiting, []
        groups: dict[int, list[tuple[_Batch, int]]] = {}
        for batch in waiting:
            for place, call in enumerate(batch.calls):
                groups.setdefault(id(call.function), []).append((batch, place))
        for group in groups.values():
            self._send_group(group)
        for batch in waiting:
            for end in batch.ends:
                end.add_done_callback(functools.partial(self._note_end, batch))

    def _send_group(self, group: list[tuple[_Batch, int]]) -> None:
        calls = [batch.calls[place] for batch, place in group]
        try:
            self._executor = self._executor or self._make()
            futures = self._executor.map_calls(
                calls[0].function,
                [call.values for call in calls],
                spread=calls[0].is_spread,
            )
        except Exception as error:  # noqa: BLE001 - joblib raises it where it waits
            for batch, place in group:
                batch.ends[place].set_exception(error)
            return
        for (batch, place), future in zip(group, futures, strict=True):
            batch.ends[place] = future

    def _note_end(self, batch: _Batch, _end: Future[Any]) -> None:
        """By the desk: joblib then asks for more, which may wait for our event loop."""
        if self._desk is not None:
            self._desk.submit(batch.end)


# Which calls travel, and as what --------------------------------------------------------


class _StaysError(Exception):
    """A call runs here and not on volunteers: of what, and why."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name} runs here and not on volunteers: {why}")


def _call_of(
    function: Any,  # noqa: ANN401 - whatever joblib was given
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> _Call:
    """Return a call as it travels, or raise `_StaysError`."""
    config = getattr(function, "config", None) or {}
    if type(function).__module__ == "sklearn.utils.parallel":
        function = function.function
    inner = function.func if isinstance(function, functools.partial) else function
    name = f"{inner.__module__}.{getattr(inner, '__qualname__', type(inner).__name__)}"
    if name == "sklearn.model_selection._validation._fit_and_score":
        for key, usual in _SETTINGS.items():
            if config.get(key, usual) != usual:
                raise _StaysError(name, f"scikit-learn's {key} is {config[key]!r}")
        return _search_call(name, *args, **kwargs)
    is_own = not is_library_module(str(inner.__module__))
    path = library_path(inner)
    if is_own or builtin_name(inner) or (path and is_handed_out(*path)):
        return _Call(function, {"args": list(args), "kwargs": dict(kwargs)})
    raise _StaysError(name, "no level or library hands it out")


def _search_call(name: str, estimator: Any, X: Any, y: Any, **told: Any) -> _Call:  # noqa: ANN401, N803 - scikit-learn's
    """Return ``_fit_and_score``'s call by public names, or raise `_StaysError`."""
    if getattr(told.get("callback_ctx"), "_callbacks", ()):
        raise _StaysError(name, "it has callbacks")
    if told.get("score_params"):
        raise _StaysError(name, "it has metadata for its scorers")
    from stoilo.learn.kernels.search import fit_and_score  # noqa: PLC0415 - an extra

    options = {
        "params": told.get("fit_params") or None,
        "return_train_score": told.get("return_train_score", False),
        "return_estimator": told.get("return_estimator", False),
        "error_score": told.get("error_score", float("nan")),
    }
    call = {key: told[key] for key in ("parameters", "train", "test")}
    call |= {"estimator": estimator, "X": X, "y": y, "options": options}
    call["scoring"] = _tell_scoring(told["scorer"])
    finish = functools.partial(_read_fit, told, call)
    return _Call(fit_and_score, call, is_spread=False, finish=finish)


def _tell_scoring(scorer: Any) -> Any:  # noqa: ANN401 - scikit-learn's
    """Return a scorer as data; see `stoilo.learn.kernels.search.read_scoring`."""
    match type(scorer).__name__:
        case "_MultimetricScorer":
            found = scorer._scorers.items()  # noqa: SLF001 - nothing else says it
            return {name: _tell_scoring(one) for name, one in found}
        case "_PassthroughScorer":
            return None
        case "_Scorer":
            told = (scorer._score_func, scorer._sign > 0)  # noqa: SLF001 - same
            return (*told, scorer._response_method, scorer._kwargs)  # noqa: SLF001 - same
    if callable(scorer):
        return scorer
    raise UsageError(
        "STO-C010", f"a scorer of type {type(scorer).__name__} does not travel"
    )


def _read_fit(
    told: Mapping[str, Any], call: Mapping[str, Any], found: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what ``_fit_and_score`` returns, from what came back."""
    result: dict[str, Any] = {"fit_error": found.get("fit_error")}
    for name in ["test"] + ["train"] * bool(told.get("return_train_score")):
        result[f"{name}_scores"] = _scores(name, call["scoring"], found, told)
    if told.get("return_n_test_samples"):
        test = call["test"]  # indices, or a mask
        is_mask = getattr(getattr(test, "dtype", None), "kind", "") == "b"
        result["n_test_samples"] = int(test.sum()) if is_mask else len(test)
    if told.get("return_times"):
        result |= {key: found.get(key, 0.0) for key in ("fit_time", "score_time")}
    if told.get("return_parameters"):
        result["parameters"] = call["parameters"]
    if told.get("return_estimator"):
        result["estimator"] = found.get("estimator", call["estimator"])
    return result


def _scores(
    name: str, scoring: object, found: Mapping[str, Any], told: Mapping[str, Any]
) -> Any:  # noqa: ANN401 - a number, or a dict of them
    if found.get("fit_error"):
        wrong = told.get("error_score")
        return dict.fromkeys(scoring, wrong) if isinstance(scoring, dict) else wrong
    prefix = f"{name}_"
    scores = {
        key.removeprefix(prefix): value
        for key, value in found.items()
        if key.startswith(prefix)
    }
    is_one = not isinstance(scoring, dict) and [*scores] == ["score"]
    return scores["score"] if is_one else scores


joblib.register_parallel_backend("stoilo", StoiloBackend)
