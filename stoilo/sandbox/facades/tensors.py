"""`torch`: no uninitialised memory, no shared buffers, no entropy, one device, no files."""

from __future__ import annotations

import contextlib
import importlib
import io
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import torch

from stoilo.core.codec import skeleton
from stoilo.core.codec.nodes import from_node, to_node
from stoilo.core.errors import StoiloError
from stoilo.core.levels import Level
from stoilo.sandbox.facades.tensor_members import (
    guard_bounds,
    guard_nodes,
    guard_tensors,
    prepare_torch,
    set_rng_state,
)
from stoilo.sandbox.language.rules import GuardError
from stoilo.sandbox.language.runtime import RUN
from stoilo.sandbox.language.substitutes import InstanceDict, by_name, stand_for

# `torch.save` and `torch.load`: what travels as a result, in memory, without pickles
#
# torch's own files are pickles. These hold our codec's bytes, which any hostile bytes are no
# match for; so they can be read in a task only. At home, return the dict of tensors itself.


_DICTS = frozenset({InstanceDict, OrderedDict})


def _check_file(file: Any) -> Any:
    if type(file) is not io.BytesIO:
        raise FileNotFoundError("a task has no files: use an io.BytesIO()")
    return file


def save(obj: Any, f: Any) -> None:
    try:
        data = skeleton.encode(to_node(obj, dicts=_DICTS))
    except StoiloError as error:
        raise TypeError(f"{error.message}; {error.hint}") from None
    _check_file(f).write(data)


def load(f: Any, map_location: Any = None, *, weights_only: bool = True) -> Any:
    # There is one device
    del map_location
    if not weights_only:
        raise GuardError("STO-G102", "a task reads no pickles: weights_only=True")
    try:
        return from_node(skeleton.decode(_check_file(f).read()))
    except StoiloError as error:
        message = "this was not written by torch.save() in a task"
        raise ValueError(f"{message}: {error.message}") from None


# `torch`: no uninitialised memory, no shared buffers, no entropy, no raw constructor


_LEGACY = {
    "BFloat16Tensor": torch.bfloat16,
    "BoolTensor": torch.bool,
    "ByteTensor": torch.uint8,
    "CharTensor": torch.int8,
    "DoubleTensor": torch.float64,
    "FloatTensor": torch.float32,
    "HalfTensor": torch.float16,
    "IntTensor": torch.int32,
    "LongTensor": torch.int64,
    "ShortTensor": torch.int16,
}


def _legacy_tensor(data: tuple[Any, ...], dtype: torch.dtype | None) -> torch.Tensor:
    # Sizes give zeros here, anything else data
    dtype = dtype or torch.get_default_dtype()
    if not data:
        return torch.zeros(0, dtype=dtype)
    if all(isinstance(item, int) and not isinstance(item, bool) for item in data):
        return torch.zeros(data, dtype=dtype)
    if isinstance(data[0], torch.Size):
        return torch.zeros(data[0], dtype=dtype)
    if isinstance(data[0], torch.Tensor):
        return data[0].detach().to(dtype)
    return torch.tensor(data[0], dtype=dtype)


def _legacy_class(name: str, dtype: torch.dtype | None) -> Any:
    """Return what stands for ``torch.Tensor`` or a constructor such as ``FloatTensor``."""

    def make(*data: Any) -> torch.Tensor:
        return _legacy_tensor(data, dtype)

    return stand_for(getattr(torch, name), make, name=name, module="torch")


TENSOR = _legacy_class("Tensor", None)


def new(self: torch.Tensor, *data: Any) -> torch.Tensor:
    # An old constructor of the tensor's own type, which distributions use
    return _legacy_tensor(data, self.dtype)


# Memory ---------------------------------------------------------------------------------


def empty(*size: Any, memory_format: Any = None, **options: Any) -> torch.Tensor:
    """Return zeros: what lies in free memory differs between honest copies."""
    made = torch.zeros(*size, **options)
    return made if memory_format is None else made.to(memory_format=memory_format)


def empty_like(like: torch.Tensor, **options: Any) -> torch.Tensor:
    """Return zeros of the shape of `like`."""
    return torch.zeros_like(like, **options)


def frombuffer(buffer: Any, **options: Any) -> torch.Tensor:
    # A copy: the library keeps no hold of the buffer that it reads, and a task could free it
    # below the tensor.
    return torch.frombuffer(bytearray(memoryview(buffer).tobytes()), **options)


def _held(data: Any) -> Any:
    # A copy where torch would borrow memory without holding it: freed below the tensor, it
    # would be read and written.
    if isinstance(data, torch.Tensor | np.ndarray | np.generic | list | tuple):
        return data
    if isinstance(data, int | float | complex):
        return data
    try:
        return np.array(memoryview(data))
    except TypeError:
        return list(data)


def asarray(obj: Any, **options: Any) -> torch.Tensor:
    return torch.asarray(_held(obj), **options)


def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> torch.Tensor:
    return torch.as_tensor(_held(data), dtype=dtype, device=device)


# Randomness and settings ----------------------------------------------------------------


class Generator(torch.Generator):
    """``torch.Generator`` whose ``seed`` takes the admission's, not the system's."""

    def seed(self) -> int:
        number = RUN.next_seed() & 0x7FFFFFFFFFFFFFFF
        self.manual_seed(number)
        return number


Generator.__module__ = "torch"


def manual_seed(seed: Any) -> torch.Generator:
    # ``torch.manual_seed`` for the one device that there is
    return torch.default_generator.manual_seed(int(seed))


def seed() -> int:
    number = RUN.next_seed() & 0x7FFFFFFFFFFFFFFF
    torch.default_generator.manual_seed(number)
    return number


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    # ``torch.use_deterministic_algorithms`` without the compiler's settings
    torch._C._set_deterministic_algorithms(bool(mode), warn_only=bool(warn_only))  # noqa: SLF001 - what the real one calls


def set_default_device(device: Any) -> None:
    # There is one device, the processor
    if device is not None and torch.device(device).type != "cpu":
        raise RuntimeError("a task computes on the processor: device 'cpu'")


def get_default_device() -> torch.device:
    return torch.device("cpu")


def set_num_threads(threads: int) -> None:
    """Ignore: the run's limits say how many threads there are."""
    del threads


def _build_torch(level: Level) -> dict[str, object]:
    # The binder finds it among the loaded modules: nothing is imported in the jail.
    importlib.import_module("stoilo.sandbox.facades.tensor_models")
    prepare_torch()
    guard_tensors()
    guard_bounds()
    guard_nodes()
    torch.Tensor.new = new  # type: ignore[assignment, method-assign]  # the library's shows free memory
    for name in level.members.get("torch.Tensor", ()):
        method = getattr(torch.Tensor, name)
        if callable(method):
            setattr(TENSOR, name, method)
    return {
        **by_name(as_tensor, asarray, empty, empty_like, frombuffer, manual_seed, seed),
        **by_name(get_default_device, set_default_device, set_num_threads),
        **by_name(load, save, set_rng_state, use_deterministic_algorithms),
        **{name: _legacy_class(name, dtype) for name, dtype in _LEGACY.items()},
        "Generator": Generator,
        "Tensor": TENSOR,
        "__version__": torch.__version__.partition("+")[0],  # the rest names a build
    }


# `torch.linalg`: least squares that do not depend on what free memory holds -----------


def lstsq(A: Any, B: Any, rcond: Any = None, *, driver: str | None = None) -> Any:  # noqa: N803 - torch's names
    """``torch.linalg.lstsq`` by singular values where the library would pivot.

    Its default driver, ``gelsy``, reads an array of pivots that nobody has set: two runs
    in one process differ in the last bits.
    """
    chosen = "gelsd" if driver in {None, "gelsy"} else driver
    return torch.linalg.lstsq(A, B, rcond, driver=chosen)


# `torch.random`: the one generator of the run; a fork of it puts its state back -------


@contextlib.contextmanager
def fork_rng(devices: object = None, *, enabled: bool = True) -> Iterator[None]:
    # ``torch.random.fork_rng`` for the one device that there is
    del devices
    state = torch.get_rng_state()
    try:
        yield
    finally:
        if enabled:
            torch.set_rng_state(state)


# `torch.cuda` and `torch.backends`: there is one device, and what chooses another is idle
#
# Research code asks for a graphics card before it takes the processor, seeds it and sets
# its switches. It gets the answers of a machine without one; nothing here reaches a driver.


class Switches:
    """Stands for a module such as ``torch.backends.cudnn``: takes settings, does nothing."""

    __slots__ = ("allow_tf32", "benchmark", "deterministic", "enabled")

    def __init__(self) -> None:
        self.allow_tf32 = self.benchmark = self.deterministic = self.enabled = False

    def is_available(self) -> Literal[False]:
        return False

    def is_built(self) -> Literal[False]:
        return False


def _unavailable() -> Literal[False]:
    return False


def _none() -> Literal[0]:
    return 0


def _idle(*_options: object) -> None:
    pass


_IDLE = ("empty_cache", "manual_seed", "manual_seed_all", "synchronize")
_DEVICES = {
    **dict.fromkeys(("is_available", "is_bf16_supported"), _unavailable),
    **dict.fromkeys(("current_device", "device_count"), _none),
    **dict.fromkeys((*_IDLE, "current_accelerator"), _idle),
    **{name: Switches() for name in ("cudnn", "mkldnn", "mps")},
}


FACADES: dict[str, object] = {
    "torch": _build_torch,
    "torch.accelerator": _DEVICES,
    "torch.backends": _DEVICES,
    "torch.cuda": _DEVICES,
    "torch.linalg": by_name(lstsq),
    "torch.random": by_name(fork_rng, manual_seed, seed, set_rng_state),
}
