"""scikit-learn as a zygote prepares it: one thread, no clock, no files, no names as text.

Set once, before any façade of it is built, in the library itself, so that it holds on
every road: own estimators, pipelines and searches call the same functions. Its loops in C
are `stoilo.sandbox.libraries.sklearn_bounds`'.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import itertools
import sys
import time
import timeit
import uuid
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn, Self

import joblib  # type: ignore[import-untyped]  # it ships no types
import numpy as np
import sklearn
from sklearn import base, datasets, preprocessing
from sklearn.compose import _column_transformer
from sklearn.datasets import _base as dataset_files
from sklearn.ensemble import _gb, _stacking
from sklearn.experimental import (  # noqa: F401 - they put their names in place
    enable_halving_search_cv,
    enable_iterative_imputer,
)
from sklearn.feature_selection import _base as selection
from sklearn.frozen import FrozenEstimator
from sklearn.gaussian_process import kernels
from sklearn.metrics import _classification
from sklearn.model_selection import _validation
from sklearn.utils import (
    _available_if,
    _bunch,
    _openmp_helpers,
    parallel,
    validation,
)

from stoilo.core.codec.nodes import from_node, to_node
from stoilo.core.levels import Level
from stoilo.sandbox.facades.functions import attrgetter
from stoilo.sandbox.language.ownership import class_mro
from stoilo.sandbox.language.rules import Closed, GuardError, is_plain
from stoilo.sandbox.language.runtime import RUN
from stoilo.sandbox.language.substitutes import by_name, guarded_format
from stoilo.sandbox.libraries.scipy_lists import exchange_lists
from stoilo.sandbox.libraries.sklearn_bounds import bound_loops


def _exchange(real: object, made: object) -> None:
    """Put `made` where modules of the library hold `real` under a name of theirs."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "sklearn" and isinstance(module, ModuleType):
            names = vars(module)
            for key in [key for key, value in names.items() if value is real]:
                names[key] = made


# One thread, and nothing that asks the machine for more ---------------------------------


class Parallel:
    """In place of joblib's: what it is given, one after the other."""

    def __init__(self, *_values: object, **_options: object) -> None:
        pass

    def __call__(
        self, calls: Iterable[tuple[Any, tuple[Any, ...], dict[str, Any]]]
    ) -> Any:
        return [
            delayed.function(*values, **options) for delayed, values, options in calls
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_details: object) -> None:
        pass


class _OneThread:
    """In place of what sets the threads of linear algebra: there is one."""

    def limit(self, **_options: object) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def info(self) -> list[dict[str, object]]:
        return []


def _one(*_values: object, **_options: object) -> int:
    return 1


def _no_cache(memory: object) -> Any:
    # Nothing is kept in files, and no own object gets inner functions to keep
    if memory is not None:
        raise GuardError("STO-G108", "memory= keeps results in files: leave it None")
    return joblib.Memory(location=None, verbose=0)


def _use_one_thread() -> None:
    _exchange(parallel.Parallel, Parallel)
    for real in (joblib.effective_n_jobs, joblib.cpu_count):
        _exchange(real, _one)
    _exchange(parallel._get_threadpool_controller, _OneThread)
    _exchange(validation.check_memory, _no_cache)
    _openmp_helpers._openmp_effective_n_threads()  # it remembers what it found


# No clock, no entropy -------------------------------------------------------------------


def _stop_clocks() -> None:
    elapsed = RUN.elapsed_s
    for real in (time.time, time.perf_counter):
        _exchange(real, elapsed)
    stopped = SimpleNamespace(
        time=elapsed, perf_counter=elapsed, default_timer=elapsed, monotonic=elapsed
    )
    for module in (time, timeit):
        _exchange(module, stopped)
    numbers = itertools.count()
    _exchange(uuid, SimpleNamespace(uuid4=lambda: uuid.UUID(int=next(numbers))))


# Names as text obey the rule of names in source -----------------------------------------


def _check_text(name: object) -> None:
    if not is_plain(name):
        raise GuardError(
            "STO-G101", f"the attribute {name!r:.64} is out of reach by name"
        )


_response_method = validation._check_response_method


def _check_response_method(estimator: Any, response_method: Any) -> Any:
    alone = isinstance(response_method, str)
    names = [response_method] if alone else list(response_method)
    for name in names:
        _check_text(name)
    return _response_method(estimator, names[0] if alone else names)


def _plain_getattr(value: Any, name: Any) -> Any:
    # Parameters and lists that a task can write into name methods
    _check_text(name)
    return getattr(value, name)


def _show_frozen(self: Any, name: str) -> Any:
    # Not protocols: an array of what it holds would live on when it holds something else
    if name.startswith("_"):
        raise AttributeError(name)
    return _frozen(self, name)


_frozen = FrozenEstimator.__getattr__


def _name_columns(transformer_name: str, feature_name: str, str_format: str) -> str:
    names = {"transformer_name": transformer_name, "feature_name": feature_name}
    return guarded_format(str_format, "format")(**names)


_warn = _classification._warn_prf


def _warn_prf(average: Any, modifier: Any, msg_start: Any, *more: Any) -> None:
    if "{" in msg_start:  # ``warn_for`` is text of the task, and becomes a template
        raise GuardError("STO-G108", "warn_for names no score")
    _warn(average, modifier, msg_start, *more)


_bunch_item = _bunch.Bunch.__getattr__


def _checked_item(self: Any, key: Any) -> Any:
    # Arrays ask by name for protocols such as ``__array_interface__``: a step of a pipeline,
    # or a key, with that name would forge one over any address
    if not is_plain(key):
        raise AttributeError(key)
    return _bunch_item(self, key)


def _parameters(find: Callable[..., Any]) -> Callable[..., Any]:
    """Return `find`, which reads the names of parameters off a constructor, checked.

    ``set_params`` and ``clone`` assign by them.
    """

    def names(cls: Any, *values: Any) -> Any:
        found = find(cls, *values)
        for name in found:
            _check_text(name)
        return found

    return names


_set_params = base.BaseEstimator.set_params
_set_kernel_params = kernels.Kernel.set_params


def _checked_params(set_params: Any) -> Any:
    @functools.wraps(set_params)
    def checked(self: Any, **params: Any) -> Any:
        for name in params:
            if type(name) is not str:
                raise TypeError("keywords must be strings")
            _check_text(name.partition("__")[0])
        return set_params(self, **params)

    return checked


def _check_available(self: Any, obj: Any, owner: Any) -> None:
    # The class whose method it is, not one that only looks like it
    if isinstance(owner, type) and owner not in class_mro(type(obj)):
        raise GuardError(
            "STO-G108",
            f"{self.attribute_name}() works on instances of {owner.__name__}",
        )
    _available(self, obj, owner)


_available = _available_if._AvailableIfDescriptor._check


def _guard_names() -> None:
    _exchange(_warn, _warn_prf)
    _exchange(_response_method, _check_response_method)
    for module in (_stacking, _validation):
        vars(module)["getattr"] = _plain_getattr
    vars(selection)["attrgetter"] = attrgetter
    for module in (_gb, sklearn.decomposition._dict_learning):
        vars(module)["locals"] = dict  # callbacks would get the library's variables
    vars(_column_transformer)["_feature_names_out_with_str_format"] = _name_columns
    FrozenEstimator.__getattr__ = _show_frozen
    _bunch.Bunch.__getattr__ = _checked_item
    estimator: Any = base.BaseEstimator
    found = estimator.__dict__["_get_param_names"].__func__
    estimator._get_param_names = classmethod(_parameters(found))
    estimator.set_params = _checked_params(_set_params)
    kernels.Kernel.set_params = _checked_params(_set_kernel_params)
    _available_if._AvailableIfDescriptor._check = _check_available


# Parameters are always looked at, also while code of the task is called back ------------

_get_config = sklearn.get_config


def _strict_config() -> dict[str, Any]:
    found: dict[str, Any] = _get_config()
    return found | {"skip_parameter_validation": False}


def _never_fitted(_estimator: object) -> bool:
    # ``partial_fit`` would trust what ``set_params`` changed since the first
    return False


def _validate_always() -> None:
    vars(base)["get_config"] = _strict_config
    vars(base)["_is_fitted"] = _never_fitted


# Settings: those that change what is shown or which container comes out ------------------

_SETTINGS = frozenset(
    {"display", "print_changed_only", "transform_output", "working_memory"}
)


def _check_settings(options: dict[str, Any]) -> None:
    if refused := sorted(set(options) - _SETTINGS):
        raise GuardError(
            "STO-G108",
            f"a task does not set {refused[0]:.64} of scikit-learn",
            hint=f"it sets {', '.join(sorted(_SETTINGS))}",
        )


def set_config(**options: Any) -> None:
    _check_settings(options)
    sklearn.set_config(**options)


@contextlib.contextmanager
def config_context(**options: Any) -> Iterator[None]:
    _check_settings(options)
    with sklearn.config_context(**options):
        yield


def get_config() -> dict[str, Any]:
    return {key: value for key, value in _get_config().items() if key in _SETTINGS}


# Small data sets: read once, in the zygote -----------------------------------------------

_READERS = ("load_csv_data", "load_descr", "load_gzip_compressed_csv_data")
_LOADED = ("breast_cancer", "diabetes", "digits", "iris", "wine")
_files: dict[str, Any] = {}


def _reading_once(reader: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(reader)
    def read(*values: Any, **options: Any) -> Any:
        key = f"{reader.__name__} {values!r} {sorted(options.items())!r}"
        if key not in _files:
            _files[key] = reader(*values, **options)
        return copy.deepcopy(_files[key])

    return read


def _read_datasets() -> None:
    for name in _READERS:
        vars(dataset_files)[name] = _reading_once(getattr(dataset_files, name))
    for name in _LOADED:
        load = getattr(datasets, f"load_{name}")
        load()
    datasets.load_diabetes(scaled=False)


# Files and callbacks ---------------------------------------------------------------------


def _no_file(*_values: object, **_options: object) -> NoReturn:
    raise GuardError("STO-G108", "a task reads no files: give the texts themselves")


def _close_files() -> None:
    for name in ("sklearn.feature_extraction.text", "sklearn.tree._export"):
        vars(sys.modules[name])["open"] = _no_file
    for kind in _below(base.BaseEstimator):
        if "set_callbacks" in dir(kind):
            kind.set_callbacks = Closed(kind.__name__, "set_callbacks")


def _below(cls: Any) -> Iterator[Any]:
    for child in type.__subclasses__(cls):
        yield child
        yield from _below(child)


def _warm_up() -> None:
    # Run what makes the library import or look at the machine once
    data, classes = np.arange(12.0).reshape(6, 2), [0, 1] * 3
    made = sklearn.pipeline.make_pipeline(
        preprocessing.StandardScaler(), sklearn.linear_model.LogisticRegression()
    )
    repr(made.fit(data, classes))
    made.score(data, classes)
    sklearn.cluster.KMeans(2, n_init=1, random_state=0).fit(data)
    from_node(to_node(made))


def prepare_sklearn() -> None:
    """Import, close and warm up; slow, once a zygote."""
    if _files:
        return
    _use_one_thread()
    _stop_clocks()
    _guard_names()
    _validate_always()
    _read_datasets()
    _close_files()
    exchange_lists()
    bound_loops()
    _warm_up()


def _build_sklearn(_level: Level) -> dict[str, object]:
    prepare_sklearn()
    return by_name(config_context, get_config, set_config)


def _build_experimental(_level: Level) -> dict[str, object]:
    # ``from sklearn.experimental import enable_…`` is only said; they are in place already
    return {"enable_halving_search_cv": None, "enable_iterative_imputer": None}


FACADES: dict[str, object] = {
    "sklearn": _build_sklearn,
    "sklearn.experimental": _build_experimental,
}
