"""Arguments and travelling state: Python values to nodes, large parts to blobs."""

from __future__ import annotations

import enum
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stoilo.client.capture.library import is_library_module
from stoilo.client.capture.library_values import LibraryValues, form_of, parts_of
from stoilo.client.capture.refusals import refuse, refuse_value
from stoilo.client.capture.targets import Target, WrapperTarget
from stoilo.core.codec.nodes import (
    MODULE,
    OPTIMIZER,
    PARAMETER,
    TENSOR,
    BlobRef,
    ClassRef,
    FunctionRef,
    Instance,
    Node,
    to_node,
)
from stoilo.core.codec.skeleton import encode
from stoilo.core.digests import content_digest
from stoilo.core.errors import UsageError
from stoilo.core.libraries import listed_name
from stoilo.core.types import BOUNDS

if TYPE_CHECKING:
    from stoilo.client.capture.fingerprints import Fingerprint
    from stoilo.client.capture.graph import Graph


@dataclass(frozen=True, slots=True)
class StoredValue:
    """A handle of `Connection.put`, or of a task's value that stays at the server.

    Attributes:
        digest: SHA-256 of the encoded value, the blob's name.
        size: encoded size, bytes; 0 where nobody has said it.
    """

    digest: str
    size: int

    @classmethod
    def of(cls, value: object) -> tuple[StoredValue, bytes]:
        """Return the handle of a plain value and its encoding.

        Raises:
            UsageError: ``STO-D…`` not plain data, ``STO-C020`` too large.
        """
        data = encode(to_node(value))
        if len(data) > BOUNDS.blob_bytes:
            raise UsageError(
                "STO-C020",
                f"the value takes {len(data)} bytes, at most {BOUNDS.blob_bytes} travel",
                hint="split it into parts and put each",
            )
        return cls(content_digest(data), len(data)), data


def encode_stored(data: bytes) -> str:
    """Return the name under which `data` is stored."""
    return content_digest(data)


# A top-level argument at least this large travels as a blob of its own, bytes
BLOB_BYTES = 256 * 1024

HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class made by a class statement

KEY_CHARS = 40  # Longer keys are not shown in messages

_CONTAINERS = (list, tuple, dict, set, frozenset)


class Values:
    """Discover what values reach, then turn them into nodes once names are known."""

    def __init__(self, graph: Graph | Fingerprint) -> None:
        self.graph = graph
        graph.discover = self.discover
        self._active: list[int] = []
        self.has_stored = False
        self._library = LibraryValues(lambda kind: graph.place(kind, "", "").name)
        self.labels = self._library.labels

    # -- discovery -----------------------------------------------------------------

    def discover(self, value: object, where: str) -> list[Target]:
        """Place every function and class inside `value`; refuse what cannot travel."""
        found: list[Target] = []
        self._discover(value, where, found)
        return found

    def _discover(self, value: object, where: str, found: list[Target]) -> None:
        if _is_plain(value):
            return
        if id(value) in self._active:
            refuse(
                "STO-C010",
                f"{where} contains itself",
                "pass a tree: replace the inner reference by a name or a number",
            )
        self._active.append(id(value))
        try:
            self._discover_parts(value, where, found)
        finally:
            self._active.pop()

    def _discover_parts(self, value: object, where: str, found: list[Target]) -> None:
        if type(value) in _CONTAINERS:
            for part, part_where in _parts(value, where):
                self._discover(part, part_where, found)
            return
        if isinstance(value, StoredValue):
            return
        if is_code(value):
            found.append(self.graph.place_callable(value, _wanted(where), where))
            return
        kind = type(value)
        if form := form_of(value):
            self._discover_library(value, form, where, found)
            return
        if not _is_instance(value):
            _refuse_leaf(value, where)
        found.append(self.graph.place(kind, "", f"class {kind.__name__} of {where}"))
        for name, part in _state(value).items():
            self._discover(part, f"{where}.{name}", found)
        self._discover(_base(value), where, found)

    def _discover_library(
        self, value: object, form: str, where: str, found: list[Target]
    ) -> None:
        if form in {PARAMETER, TENSOR}:
            _refuse_leaf(value, where)
        for part, part_where in parts_of(value, form, where):
            self._discover(part, part_where, found)
        if form not in {MODULE, OPTIMIZER}:
            return
        kind = type(value)
        if is_library_module(kind.__module__):
            self._library.class_name(kind, where)
        else:
            place = f"class {kind.__name__} of {where}"
            found.append(self.graph.place(kind, "", place))

    # -- nodes ---------------------------------------------------------------------

    def node(self, value: object) -> Node:
        """Return the node of a discovered value."""
        return to_node(value, self)

    def to_ref(self, value: object, convert: Callable[[object], Node]) -> Node:
        """Name what is not plain data (see `stoilo.core.codec.nodes.References`)."""
        if isinstance(value, StoredValue):
            self.has_stored = True
            return value  # the packer puts a blob reference here
        if form := form_of(value):
            return self._library.node(value, form, convert)
        if is_code(value):
            target: Target = self.graph.place_callable(value, "", "")
            is_class = isinstance(value, type) and not isinstance(target, WrapperTarget)
            return ClassRef(target.name) if is_class else FunctionRef(target.name)
        name = self.graph.place(type(value), "", "").name
        base = convert(_base(value))  # first, as the other side reads it
        state = {key: convert(part) for key, part in _state(value).items()}
        return Instance(name, state, base)

    def from_ref(self, node: Node, convert: Callable[[Node], object]) -> object:
        """Refuse: the client builds references, it never follows them."""
        del convert
        raise UsageError("STO-C010", f"a {type(node).__name__} names nothing here")


def is_code(value: object) -> bool:
    """Whether `value` is a function, class or other callable without data of its own."""
    if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType):
        return True
    if isinstance(value, types.MethodType):
        return True
    kind = type(value)
    library = is_library_module(kind.__module__)
    return library and callable(value) and kind.__name__ in _LIBRARY_CALLABLES


_LIBRARY_CALLABLES = frozenset(
    {"partial", "_lru_cache_wrapper", "ufunc", "method_descriptor"}
    | {"wrapper_descriptor", "_ArrayFunctionDispatcher"}
)


def _is_plain(value: object) -> bool:
    try:
        to_node(value)
    except UsageError:
        return False
    return True


# What travels in most forms: the codec's words say which form does not
_ARRAYS = frozenset({"numpy.ndarray", "numpy.void", "torch.Tensor"})


def _refuse_leaf(value: object, where: str) -> None:
    try:
        to_node(value)
    except UsageError as error:
        kind = f"{type(value).__module__}.{type(value).__name__}"
        spoken_for = kind in _ARRAYS or listed_name(value)
        if error.code == "STO-D001" and not spoken_for:
            refuse_value(value, where)
        raise UsageError(
            error.code, f"{where}: {error.message}", hint=error.hint
        ) from None


def _is_instance(value: object) -> bool:
    """Whether `value` belongs to a class of the researcher and has state we can read."""
    kind = type(value)
    if is_library_module(kind.__module__):
        return False
    allowed = {object, *_BASES}
    if any(not cls.__flags__ & HEAP_TYPE for cls in kind.__mro__ if cls not in allowed):
        return False  # memory of a C type that no attribute shows
    return not isinstance(value, enum.Enum | BaseException | types.ModuleType)


def _state(value: object) -> dict[str, object]:
    """Return the attributes of an instance without running any of its code."""
    state: dict[str, object] = {}
    for cls in reversed(type(value).__mro__):
        for name, member in vars(cls).items():
            if isinstance(member, types.MemberDescriptorType):
                try:
                    state[name] = member.__get__(value)
                except AttributeError:
                    continue
    try:
        state |= object.__getattribute__(value, "__dict__")
    except AttributeError:
        return state
    return state


def _plain_copy(kind: Any, value: object) -> object:  # noqa: ANN401 - a builtin type
    return kind(value)


_BASES = (list, dict, set, frozenset, tuple, str, bytes, int, float, complex)


def _base(value: object) -> object:
    """Return the builtin part of an instance whose class extends list, dict, str and so on."""
    for kind in _BASES:
        if isinstance(value, kind):
            return _plain_copy(kind, value)
    return None


def _parts(value: object, where: str) -> Iterator[tuple[object, str]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield key, f"a key of {where}"
            yield (
                item,
                f"{where}[{key!r}]" if len(repr(key)) <= KEY_CHARS else f"{where}[…]",
            )
        return
    items: list[object] = list(value)  # type: ignore[call-overload]  # a container
    for index, item in enumerate(items):
        yield item, f"{where}[{index}]"


def _wanted(where: str) -> str:
    """Return a name for a function found at ``kwargs['f']``: ``f``."""
    name = where.rpartition("[")[2].rstrip("]").strip("'\"")
    return name if name.isidentifier() else ""


class Packer:
    """Encode calls; values of some size go to blobs, each content once."""

    def __init__(self, *, has_stored: bool = False) -> None:
        self.blobs: dict[str, bytes | str] = {}
        self.has_stored = has_stored

    def encode(self, node: Node) -> bytes:
        """Return the inline encoding of `node`; a dict's large entries become blobs.

        Raises:
            UsageError: ``STO-C020`` when something is too large to travel at all.
        """
        if self.has_stored:
            node = self._resolve_stored(node)
        made = self._spill(node, BLOB_BYTES)
        data = encode(made)
        if len(data) > BOUNDS.inline_arguments_bytes:
            made = self._spill(node, 4096)
            data = encode(made)
        if len(data) > BOUNDS.inline_arguments_bytes:
            raise too_large("the arguments", len(data), BOUNDS.inline_arguments_bytes)
        if len(self.blobs) > BOUNDS.blobs_per_task:
            raise too_large("the number of large arguments", len(self.blobs), 64)
        return data

    def _spill(self, node: Node, threshold: int, depth: int = 0) -> Node:
        """Replace entries of the outer dicts and lists by blob references."""
        if type(node) is dict and depth < 3:  # noqa: PLR2004 - call, kwargs, entry
            return {
                key: self._spill_entry(value, threshold, depth)
                for key, value in node.items()
            }
        if type(node) is list and depth < 3:  # noqa: PLR2004 - same
            return [self._spill_entry(value, threshold, depth) for value in node]
        return node

    def _spill_entry(self, value: Node, threshold: int, depth: int) -> Node:
        data = encode(value)
        if len(data) < threshold or type(value) is BlobRef:
            return value
        if self.has_stored and _holds_blob(value):  # no blob refers to another
            return self._spill(value, threshold, depth + 1)
        if type(value) in {dict, list} and depth < 1:
            return self._spill(value, threshold, depth + 1)
        if len(data) > BOUNDS.blob_bytes:
            raise too_large("an argument", len(data), BOUNDS.blob_bytes)
        return self._blob(content_digest(data), data)

    def _blob(self, digest: str, data: bytes | str) -> BlobRef:
        self.blobs.setdefault(digest, data)
        return BlobRef(list(self.blobs).index(digest))

    def _resolve_stored(self, node: Node) -> Node:
        """Put blob references where handles of `Connection.put` stand."""
        match node:
            case StoredValue():
                return self._blob(node.digest, node.digest)
            case dict():
                return {key: self._resolve_stored(value) for key, value in node.items()}
            case list():
                return [self._resolve_stored(value) for value in node]
            case tuple():
                return tuple(self._resolve_stored(value) for value in node)
            case Instance():
                state = self._resolve_stored(node.state)
                return Instance(node.class_name, state, node.base)
        return node


def _holds_blob(node: Node) -> bool:
    match node:
        case BlobRef():
            return True
        case dict():
            return any(map(_holds_blob, node.values()))
        case list() | tuple():
            return any(map(_holds_blob, node))
        case Instance():
            return _holds_blob(node.state)
    return False


def too_large(what: str, size: int, bound: int) -> UsageError:
    """Return the refusal ``STO-C020``."""
    return UsageError(
        "STO-C020",
        f"{what} take {size}, at most {bound} can travel",
        hint="split the work into more tasks, or send smaller parts",
    )
