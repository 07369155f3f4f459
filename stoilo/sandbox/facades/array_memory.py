"""What arrays show of raw memory: no addresses of objects, nothing left uninitialised.

Two things that numpy offers no switch for, so its tables in memory are changed, once, in
the process that prepares a level:

- An array of Python objects is an array of addresses, and numpy exports it as a buffer
  like any other: whoever writes there (``struct.pack_into``, ``memoryview``, a
  `numpy.frombuffer` of it) forges objects. `seal_exports` puts a check in front of the
  buffer slot of numpy's types; the same holds for packed variable-width strings.
- ``where=`` leaves elements as they were found in free memory (I7). `call_zeroed` swaps
  numpy's allocator for C's ``calloc`` for as long as such a call runs.

Sources: numpy's `PyDataMem_Handler` (NEP 49), CPython's `PyBufferProcs`.
"""

from __future__ import annotations

import ctypes
import gc
import mmap
import platform
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy._core import _multiarray_umath as umath  # type: ignore[attr-defined]  # undeclared

from stoilo.core.errors import InternalError
from stoilo.sandbox.kernel.calls import check_call
from stoilo.sandbox.language.hardening import replace_member
from stoilo.sandbox.language.substitutes import StandIn

_WORD = ctypes.sizeof(ctypes.c_void_p)
_BUFFER_TABLE = 20 * _WORD  # where a type object holds `tp_as_buffer`, 3.8 to 3.14
_DEFAULT_HANDLER = 306  # `PyDataMem_DefaultHandler` in numpy's table of its C interface
_HANDLER_VERSION = 1

_Export = ctypes.PYFUNCTYPE(
    ctypes.c_int, ctypes.py_object, ctypes.c_void_p, ctypes.c_int
)
_places: dict[int, int] = {}  # buffer export → what stands in front of it


class _Allocator(ctypes.Structure):
    """`PyDataMemAllocator`, and CPython's `PyMemAllocatorEx`, which has the same form."""

    _fields_ = (
        ("context", ctypes.c_void_p),
        ("malloc", ctypes.c_void_p),
        ("calloc", ctypes.c_void_p),
        ("realloc", ctypes.c_void_p),
        ("free", ctypes.c_void_p),
    )


class _Handler(ctypes.Structure):
    """`PyDataMem_Handler`."""

    _fields_ = (
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("allocator", _Allocator),
    )


# Uninitialised memory ----------------------------------------------------------------


def _find_allocator() -> _Allocator:
    """Return the table that numpy's arrays are allocated through."""
    read = ctypes.pythonapi.PyCapsule_GetPointer
    read.restype, read.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    interface = read(umath._ARRAY_API, None)  # noqa: SLF001 - numpy's public C interface
    place = ctypes.c_void_p.from_address(interface + _DEFAULT_HANDLER * _WORD).value
    capsule = ctypes.py_object.from_address(place or 0).value
    handler = _Handler.from_address(read(capsule, b"mem_handler"))
    if handler.name != b"default_allocator" or handler.version != _HANDLER_VERSION:
        raise InternalError("STO-P001", "this numpy allocates in a way unknown to us")
    found: _Allocator = handler.allocator
    return found


def _make_zeroing() -> _Allocator:
    """Return an allocator whose ``malloc(context, size)`` is C's ``calloc(1, size)``.

    The other functions are CPython's raw ones, which ignore their context.
    """
    raw = _Allocator()
    ctypes.pythonapi.PyMem_GetAllocator(0, ctypes.byref(raw))
    calloc = ctypes.cast(ctypes.CDLL(None).calloc, ctypes.c_void_p).value
    return _Allocator(1, calloc, raw.calloc, raw.realloc, raw.free)


_allocator = _find_allocator()
_ZEROING = bytes(_make_zeroing())
_PLACE, _SIZE = ctypes.addressof(_allocator), ctypes.sizeof(_Allocator)


def call_zeroed(function: Callable[..., Any], /, *args: Any, **keywords: Any) -> Any:
    """Return ``function(*args, **keywords)``; arrays that it allocates start as zeros.

    For a process with one thread; may be nested.
    """
    before = ctypes.string_at(_PLACE, _SIZE)
    ctypes.memmove(_PLACE, _ZEROING, _SIZE)
    try:
        return function(*args, **keywords)
    finally:
        ctypes.memmove(_PLACE, before, _SIZE)


# Addresses ---------------------------------------------------------------------------

_exporting: list[object] = []  # not empty while `call_exporting` runs


def call_exporting(function: Callable[..., Any], /, *args: Any) -> Any:
    """Return ``function(*args)``; arrays of objects that it makes show it their buffers.

    For compiled functions that keep no buffer and call nothing of a task: `args` are exact
    numbers and arrays of them. Nothing is collected meanwhile, since a task's generators
    run their ``finally`` then.
    """
    collecting = gc.isenabled()
    gc.disable()
    _exporting.append(function)
    try:
        return function(*args)
    finally:
        _exporting.pop()
        if collecting:
            gc.enable()


_FORMAT, _STRIDES, _INDIRECT = 0x04, 0x18, 0x100  # of a request (Include/pybuffer.h)
_KIND = _FORMAT | _STRIDES | _INDIRECT  # what of a request tells its readers apart
_TYPED = _FORMAT | _STRIDES
_admitted = ctypes.c_uint32(
    ~0
)  # the one kind that sees objects; no request equals this


def admit_typed_readers() -> None:
    """Let compiled code that asks for objects see arrays of objects, as pandas' does.

    Cython compares the format with the type that it was compiled for, and only it asks so:
    ``memoryview``, ``bytes`` and their like ask for indirect or for plain bytes.
    """
    _admitted.value = _TYPED


def _checked_export(slot: int) -> Any:
    """Return what stands in front of the buffer export at address `slot`."""
    export = _Export(slot)

    def checked(array: Any, view: int, flags: int) -> int:
        try:
            admitted = _exporting or flags & _KIND == _admitted.value
            closed = array.dtype.hasobject and not admitted
            return -1 if closed else export(array, view, flags)
        except Exception:  # noqa: BLE001 - C is above: the caller says what failed
            return -1

    return _Export(checked)


# Nearly every call of a function that Cython compiled exports its arrays, and a function of
# Python in the slot costs each of them more than a microsecond. So on x86-64 a few
# instructions ask the one question first, and go straight on for arrays of anything but
# objects. Elsewhere, and for scalars, Python is asked each time.

_DESCR, _FLAGS = 56, 32  # of `PyArrayObject_fields.descr`, `PyArray_Descr.flags`
_HAS_OBJECT = 1  # `NPY_ITEM_REFCOUNT`, which `dtype.hasobject` reads too
_KINDS = ("O", "T", "i1,O", "i1,f8", "f8", "?", "U3", "M8[s]")


def _check_layout() -> None:
    """Raise ``STO-P001`` unless arrays lie in memory as `_instructions` read them."""
    for kind in _KINDS:
        array: Any = np.empty(1, dtype=kind)
        descr = ctypes.c_void_p.from_address(id(array) + _DESCR).value
        flags = ctypes.c_uint64.from_address(id(array.dtype) + _FLAGS).value
        closed = bool(flags & _HAS_OBJECT)
        if descr != id(array.dtype) or closed != array.dtype.hasobject:
            raise InternalError("STO-P001", "this numpy lays arrays out unknown to us")


def _instructions(export: int, checked: int) -> bytes:
    """Return x86-64 code that goes on to `export` where no object is shown or it may be.

    All else goes to `checked`. Parameters (rdi: array, rsi: view, edx: flags) and the stack
    stay as they are; rax and rcx are free.
    """
    to_export, to_checked, admitted = (
        place.to_bytes(8, "little")
        for place in (export, checked, ctypes.addressof(_admitted))
    )
    leave = b"\x48\xb8" + to_export + b"\xff\xe0"  # mov rax, export; jmp rax
    ask = (
        b"\x48\xb8"
        + admitted  # mov rax, place of what is admitted
        + b"\x89\xd1"  # mov ecx, edx
        + b"\x81\xe1"
        + _KIND.to_bytes(4, "little")  # and ecx, kind
        + b"\x3b\x08"  # cmp ecx, [rax]
    )
    return b"".join(
        (
            b"\xf3\x0f\x1e\xfa",  # endbr64
            bytes((0x48, 0x8B, 0x47, _DESCR)),  # mov rax, [rdi + descr]
            bytes((0xF6, 0x40, _FLAGS, _HAS_OBJECT)),  # test byte [rax + flags], object
            bytes((0x74, len(ask) + 2 + 12)),  # jz to the end: no objects
            ask,
            bytes((0x74, 12)),  # jz to the end: admitted
            b"\x48\xb8" + to_checked + b"\xff\xe0",  # mov rax, checked; jmp rax
            leave,
        )
    )


def _quickened(export: int, checked: int) -> int:
    """Return what an array's slot holds: `_instructions` where they can run, or `checked`."""
    if platform.machine() != "x86_64":
        return checked
    code = _instructions(export, checked)
    page = mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    page[: len(code)] = code
    place = ctypes.c_char.from_buffer(page)
    _keep(place)
    _forbid_writing(ctypes.addressof(place))
    return ctypes.addressof(place)


def _keep(owner: Any) -> None:
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(owner))  # outlives the interpreter


def _buffer_slot(kind: type) -> ctypes.c_void_p:
    table = ctypes.c_void_p.from_address(id(kind) + _BUFFER_TABLE).value
    return ctypes.c_void_p.from_address(table or 0)


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _exports(kind: type) -> set[int]:
    return {_buffer_slot(one).value or 0 for one in _kinds(kind)}


def _make_places() -> dict[int, int]:
    """Return for each buffer export of arrays and scalars the address of what guards it."""
    checks = {
        export: _checked_export(export)
        for export in sorted(_exports(np.ndarray) | _exports(np.void))
    }
    for check in checks.values():  # all are made: their pages take no more
        _keep(check)
        _forbid_writing(_address(check))
    _keep(_admitted)
    places = {export: _address(check) for export, check in checks.items()}
    quick = {one: _quickened(one, places[one]) for one in _exports(np.ndarray)}
    return places | quick


def _forbid_writing(address: int) -> None:
    # W^X holds for the page of generated code too.
    page = address & -mmap.PAGESIZE
    libc = ctypes.CDLL(None, use_errno=True)
    length = ctypes.c_size_t(mmap.PAGESIZE)
    executable = mmap.PROT_READ | mmap.PROT_EXEC
    check_call(libc.mprotect(ctypes.c_void_p(page), length, executable), "mprotect")


def _check_sealed() -> None:
    holder: Any = np.array([None], dtype=object)
    try:
        memoryview(holder)
    except SystemError:
        return
    raise InternalError("STO-P001", "this numpy exports buffers in a way unknown to us")


def seal_exports() -> None:
    """Refuse the raw bytes of arrays and scalars that hold objects, by any way out.

    A buffer is refused with `SystemError`, since a slot written in Python cannot name its
    error. Once a process.
    """
    if _places:
        return
    _check_layout()
    _places.update(_make_places())
    for kind in (*_kinds(np.ndarray), *_kinds(np.void)):
        slot = _buffer_slot(kind)
        slot.value = _places[slot.value or 0]
    for kind in (np.ndarray, np.generic):
        _replace(kind, "tobytes", _guard_bytes)
    _replace(np.ndarray, "view", _translate_view)
    _check_sealed()


def _replace(kind: type, name: str, make: Callable[[Any], Any]) -> None:
    replace_member(kind, name, make(kind.__dict__[name]))


def _guard_bytes(copy_bytes: Callable[..., bytes]) -> Callable[..., bytes]:
    """Return ``tobytes``, which copies memory without asking for a buffer, guarded."""

    def tobytes(self: Any, order: str = "C") -> bytes:
        if self.dtype.hasobject:
            raise TypeError("the bytes of an array of objects are addresses")
        return copy_bytes(self, order)

    return tobytes


def _real_class(kind: Any) -> Any:
    return vars(kind).get("__stoilo_real__", kind) if type(kind) is StandIn else kind


def _translate_view(show: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``view`` that knows a stand-in for the array class that it stands for."""

    def view(self: Any, *kinds: Any, **named: Any) -> Any:
        if not named and StandIn not in map(type, kinds):
            return show(self, *kinds)  # nearly always; libraries call it often
        named = {name: _real_class(kind) for name, kind in named.items()}
        return show(self, *map(_real_class, kinds), **named)

    return view


def _kinds(kind: type) -> Iterator[type]:
    yield kind
    children: list[type] = type.__subclasses__(kind)
    for child in children:
        yield from _kinds(child)
