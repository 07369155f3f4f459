"""What a task gets and gives, in the jail: arguments, its result, how it failed (design §6).

References are looked up in the task module under the guards' name rule. Instances are
made without running any of their code: no ``__init__``, ``__setstate__``, ``__reduce__``,
property or ``__setattr__`` is called on what came from the wire. Modules and optimisers
of torch are `stoilo.sandbox.facades.tensor_models`'.
"""

from __future__ import annotations

import re
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from types import MemberDescriptorType, ModuleType
from typing import Any

import msgspec

from stoilo.core.codec import nodes, skeleton
from stoilo.core.codec.nodes import (
    BlobRef,
    ClassRef,
    FunctionRef,
    Instance,
    Node,
    from_node,
    to_node,
)
from stoilo.core.errors import PolicyRefusal, StoiloError, TrustError
from stoilo.core.types import BOUNDS, RunLayer, RunStatus
from stoilo.sandbox.language.ownership import class_dict, class_mro, is_own_class, keeps
from stoilo.sandbox.language.rules import (
    GUARDED_DUNDERS,
    TASK_FILENAME,
    NameKind,
    attribute_kind,
    is_variable_name,
)
from stoilo.sandbox.language.runtime import LanguageRuntime
from stoilo.sandbox.language.substitutes import InstanceDict
from stoilo.sandbox.process.child import OUT_OF_MEMORY_CODE, is_out_of_memory

# Attributes of what arguments name, set without running any of its code ---------------


def state_refusal(message: str) -> TrustError:
    """Return the refusal ``STO-G110``: the state does not fit the class."""
    return TrustError("STO-G110", message)


def set_state(instance: Any, name: str, value: object) -> None:
    """Set the attribute `name` (from the wire); no setter or ``__setattr__`` runs.

    Raises:
        TrustError: ``STO-G110``, the name is reserved or the class has no room for it.
    """
    if attribute_kind(name) is NameKind.REFUSED or name in GUARDED_DUNDERS:
        raise state_refusal(f"the attribute name {name[:64]!r} is reserved")
    for cls in class_mro(type(instance)):
        member = class_dict(cls).get(name)
        if isinstance(member, MemberDescriptorType):
            if not is_own_class(cls):
                raise state_refusal(f"{name[:64]!r} belongs to a library class")
            member.__set__(instance, value)
            return
    try:
        attributes = object.__getattribute__(instance, "__dict__")
    except AttributeError:
        raise state_refusal(f"there is no attribute {name[:64]!r}") from None
    attributes[name] = value


# Made by the façade of torch where a level has one: a volunteer whose levels have none
# never loads it. All else that travels is made here.
_MODELS = "stoilo.sandbox.facades.tensor_models"

_BASES = (list, dict, set, frozenset, tuple, str, bytes, int, float, complex)


class TaskReferences:
    """Resolves what arguments name in a loaded task module (see `core.codec.nodes`)."""

    def __init__(
        self, module: ModuleType, runtime: LanguageRuntime, blobs: Sequence[bytes] = ()
    ) -> None:
        self._module = module
        self._guards = runtime.guards
        self._models: Any = None
        if tensors := sys.modules.get(_MODELS):
            self._models = tensors.Models(
                runtime.facades.modules, runtime.guards, self._look_up_own_class
            )
        self._blobs = blobs
        self._inside_blob = False

    def to_ref(self, value: object, convert: Callable[[object], Node]) -> Node:
        """Refuse: results are plain data."""
        del convert
        raise TrustError(
            "STO-D001", f"a {type(value).__name__} cannot leave the sandbox"
        )

    def from_ref(self, node: Node, convert: Callable[[Node], object]) -> object:
        """Return the function, class, new instance or blob's value that `node` names.

        Raises:
            TrustError: ``STO-G110`` nothing of that kind has this name, the
                state does not fit the class, a blob is missing or nested.
        """
        match node:
            case FunctionRef(name=name):
                return self._look_up(name, callable, "function")
            case ClassRef(name=name):
                return self._look_up(name, _is_class, "class")
            case Instance(class_name=nodes.ORDERED, base=dict()):
                items: Any = convert(node.base)
                return OrderedDict(items)
            case Instance(class_name=name, base=base) if (
                name in nodes.FORMS or isinstance(base, Instance)
            ):
                return self._make_model(node, convert)
            case Instance():
                return self._make_instance(node, convert)
            case BlobRef(index=index):
                return self._read_blob(index)
        raise TrustError("STO-G110", "an unknown kind of reference")

    def _look_up(self, name: str, accept: Callable[[Any], bool], kind: str) -> Any:
        value = self._resolve(name.split("."))
        if value is None or not accept(value):
            raise TrustError("STO-G110", f"the source defines no {kind} {name[:64]!r}")
        return value

    def _resolve(self, parts: list[str]) -> Any:
        if not all(map(is_variable_name, parts)):
            return None
        value = self._module.__dict__.get(parts[0])
        try:
            for part in parts[1:]:
                value = self._guards.getattr(value, part)
        except (AttributeError, PolicyRefusal):
            return None
        return value

    def _make_instance(
        self, node: Instance, convert: Callable[[Node], object]
    ) -> object:
        cls = self._look_up_own_class(node.class_name)
        instance = _new_instance(cls, convert(node.base))
        libraries = [base for base in class_mro(cls) if not is_own_class(base)]
        for name, value in node.state.items():
            if any(keeps(base, name) for base in libraries):
                raise state_refusal(f"{name[:64]!r} belongs to a library class")
            set_state(instance, name, convert(value))
        return instance

    def _look_up_own_class(self, name: str) -> type:
        cls: type = self._look_up(name, _is_class, "class")
        if not is_own_class(cls):
            raise TrustError("STO-G110", f"{name[:64]!r} is no class of the source")
        return cls

    def _make_model(self, node: Instance, convert: Callable[[Node], object]) -> object:
        if self._models is None:
            raise state_refusal("this level has no torch")
        made: object = self._models.make(node, convert)
        return made

    def start_call(self) -> None:
        """Forget which objects earlier arguments shared."""
        if self._models is not None:
            self._models.start_call()

    def _read_blob(self, index: int) -> object:
        if self._inside_blob or not 0 <= index < len(self._blobs):
            raise TrustError("STO-G110", f"there is no blob {index} to refer to here")
        self._inside_blob = True
        try:
            return from_node(skeleton.decode(self._blobs[index]), self)
        finally:
            self._inside_blob = False


def _is_class(value: object) -> bool:
    return isinstance(value, type)


def _new_instance(cls: type, base: Any) -> Any:
    for kind in _BASES:
        if issubclass(cls, kind):
            return _new_with_base(cls, kind, base)
    if base is not None:
        raise TrustError("STO-G110", f"{cls.__name__} extends no builtin container")
    try:
        return object.__new__(cls)
    except TypeError:
        raise TrustError(
            "STO-G110", f"instances of {cls.__name__} do not travel"
        ) from None


def _new_with_base(cls: type, kind: Any, base: Any) -> Any:
    fits: bool = type(base) is kind
    if not fits:
        raise TrustError("STO-G110", f"{cls.__name__} needs the content of its {kind}")
    if kind in {list, dict, set}:
        instance: Any = kind.__new__(cls)
        fill: Any = getattr(kind, "extend" if kind is list else "update")
        fill(instance, base)
        return instance
    make: Any = kind.__new__
    return make(cls, base)


def bind_arguments(
    data: bytes,
    module: ModuleType,
    runtime: LanguageRuntime,
    blobs: Sequence[bytes] = (),
    *,
    items: int = 0,
) -> Any:
    """Return the call's argument from its encoding (untrusted), bound to `module`.

    With `items` the encoding is a list of that many arguments, which share nothing.

    Raises:
        TrustError: ``STO-D…`` malformed, ``STO-G11x`` names nothing of the source,
            ``STO-G110`` there are not `items` arguments.
    """
    references = TaskReferences(module, runtime, blobs)
    node = skeleton.decode(data)
    if not items:
        return from_node(node, references)
    if type(node) is not list or len(node) != items:
        raise TrustError("STO-G110", f"there are not {items} items to call with")
    arguments = []
    for item in node:
        references.start_call()
        arguments.append(from_node(item, references))
    return arguments


_DICTS = frozenset({OrderedDict, InstanceDict})


def encode_result(value: object) -> bytes:
    """Return the encoding of what the task returned."""
    return skeleton.encode(to_node(value, dicts=_DICTS))


# How a task's exception is told: type and text, bounded, free of paths and user names


TEXT_CHARS = 2000
TYPE_CHARS = 128
_GUARD_CODE = r"STO-G1[0-9]{2}"
_PATH = r"(?<![\w./:])(?:/(?:[\w.+@~-]+/)+[\w.+@~-]*|[A-Za-z]:\\[^\s'\"]+|~/[^\s'\"]+)"


class Failure(msgspec.Struct, frozen=True):
    """Why a run gave no value, in the terms of design §7."""

    status: RunStatus  # refused, user_error or killed
    layer: RunLayer  # who decided
    code: str  # stable code
    error_type: str  # name of the exception's class, empty for a refusal
    error_text: str  # what it said
    # The task's calls under way, a ``name:line`` a line, innermost last
    calls: str = ""


def scrub_paths(text: str) -> str:
    """Return `text`, as it can travel, with every absolute path replaced by its last part.

    Lone surrogates are spelled out: a frame with one could not be written, and the run would
    seem to have ended by itself.
    """

    def keep_name(match: re.Match[str]) -> str:
        return re.split(r"[/\\]", match[0].rstrip("/"))[-1] or "…"

    sound = text.encode("utf-8", "backslashreplace").decode()
    return re.sub(_PATH, keep_name, sound)


def _type_name(error: BaseException) -> str:
    name = str.__str__(type(error).__name__)[:TYPE_CHARS]
    return name.encode("utf-8", "backslashreplace").decode()[:TYPE_CHARS]


def _text_of(error: BaseException) -> str:
    # ``__str__`` may be the task's own code: what it does or returns is caught, cut, scrubbed.
    try:
        text = str(error)
    except BaseException as second:  # noqa: BLE001 - the task's __str__ may do anything
        return f"(its text raised {_type_name(second)})"
    return scrub_paths(str.__str__(text)[: 2 * TEXT_CHARS])[:TEXT_CHARS]


def _calls_of(error: BaseException) -> str:
    # By the type's own descriptor: the task's class may have another idea of it.
    at = vars(BaseException)["__traceback__"].__get__(error)
    found: deque[str] = deque(maxlen=BOUNDS.calls)
    while at is not None:
        code = at.tb_frame.f_code
        if code.co_filename == TASK_FILENAME:
            found.append(f"{code.co_qualname[:64]}:{at.tb_lineno}")
        at = at.tb_next
    return "\n".join(found)


def _guard_code(error: PolicyRefusal) -> str:
    # A task may have caught, changed and raised the error again: only an exact code counts.
    code = error.args[0] if error.args else None
    if type(code) is str and re.fullmatch(_GUARD_CODE, code):
        return code
    return "STO-G101"


def _guard_text(error: PolicyRefusal) -> str:
    # Only what are still exact strings: the task may have put its own objects in their place.
    parts = [part for part in error.args[1:3] if type(part) is str and part]
    return scrub_paths(": ".join(parts))[:TEXT_CHARS]


def describe_exception(error: BaseException) -> Failure:
    """Return how `error`, which reached the top of a task, is reported."""
    if is_out_of_memory(error):
        return Failure(
            RunStatus.KILLED,
            RunLayer.LIMITS,
            OUT_OF_MEMORY_CODE,
            "MemoryError",
            "out of memory",
        )
    if isinstance(error, PolicyRefusal):
        return Failure(
            RunStatus.REFUSED,
            RunLayer.LANGUAGE,
            _guard_code(error),
            "",
            _guard_text(error),
            _calls_of(error),
        )
    return Failure(
        RunStatus.USER_ERROR,
        RunLayer.LANGUAGE,
        "STO-G200",
        _type_name(error),
        _text_of(error),
        _calls_of(error),
    )


def describe_refusal(error: StoiloError) -> Failure:
    """Return how a source or argument that never ran is reported."""
    text = f"{error.message}: {error.hint}" if error.hint else error.message
    return Failure(RunStatus.REFUSED, RunLayer.GATE, error.code, "", text)


def describe_result(error: StoiloError | TrustError) -> Failure:
    """Return how a returned value that cannot be encoded is reported."""
    return Failure(
        RunStatus.USER_ERROR,
        RunLayer.RESULT,
        error.code,
        "",
        scrub_paths(error.message),
    )
