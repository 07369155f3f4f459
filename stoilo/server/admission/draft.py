"""A researcher's request as checked data: every size is bounded before use (I5)."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stoilo.core.digests import Digest, check_digest, content_digest
from stoilo.core.errors import UsageError
from stoilo.core.types import BOUNDS, Redundancy, RunLimits, check_redundancy
from stoilo.policies.gate import GateRequest
from stoilo.server.admission.value_facts import ValueFacts, read_facts

if TYPE_CHECKING:
    from stoilo.core.levels import Level
    from stoilo.core.rpc import tasks_pb2 as pb
    from stoilo.policies.policy import Policy


MAX_TOPICS = 8
LIGHT_BYTES = 64 * 1024
"""Of a request that is read among others; hashing more takes milliseconds."""
_TOPIC = re.compile(r"[A-Za-z0-9_./+-]{1,64}")
_KEY = re.compile(r"[A-Za-z0-9._:-]{1,64}")
LONGEST_DELAY_S = 5 * 86_400
"""A result's time to answer must fit twice into an admission's life."""


@dataclass(frozen=True, slots=True)
class Draft:
    """One CreateTask request, bounded; its sources are still hostile."""

    request: pb.CreateTaskRequest
    digest: Digest  # of the whole request without its key
    redundancy: Redundancy
    argument_types: tuple[str, ...]  # library types in the arguments themselves

    @property
    def key(self) -> str:
        """The idempotency key."""
        return self.request.idempotency_key

    def review(
        self,
        policy: Policy,
        blob_types: tuple[str, ...] = (),
        libraries: tuple[str, ...] | None = None,
    ) -> GateRequest:
        """Return what the gate is asked; `blob_types` come from the named blobs.

        `libraries`: import names of those that the project's flavors hold; None: any.
        """
        asked = self.request
        return GateRequest(
            asked.task_module,
            asked.validator_module or None,
            asked.entry,
            asked.level,
            policy,
            tuple(sorted({asked.init_entry, asked.compare_entry} - {""})),
            tuple(sorted({*self.argument_types, *blob_types})),
            libraries,
        )


def is_key(text: str) -> bool:
    """Whether `text` (untrusted) can be an idempotency key."""
    return _KEY.fullmatch(text) is not None


def request_digest(request: pb.CreateTaskRequest) -> Digest:
    """Return the digest that two requests with one key must share."""
    plain = type(request)()
    plain.CopyFrom(request)
    plain.ClearField("idempotency_key")
    return content_digest(plain.SerializeToString(deterministic=True))


def check_form(request: pb.CreateTaskRequest) -> None:
    """Check what costs nothing of an untrusted request: sizes and names.

    Raises:
        UsageError: ``STO-R010`` naming the field, ``STO-C042`` for the redundancy.
    """
    _check_sizes(request)
    _check_names(request)
    _redundancy(request)


def is_light(request: pb.CreateTaskRequest) -> bool:
    """Whether an untrusted request may be read among others, without holding them up."""
    parts = (request.task_module, request.validator_module, request.arguments)
    return sum(map(len, parts)) <= LIGHT_BYTES


def parse_draft(
    request: pb.CreateTaskRequest,
    read: Callable[[bytes], ValueFacts] = read_facts,
) -> Draft:
    """Check an untrusted request; `read` finds what its arguments hold.

    Raises:
        UsageError: ``STO-R010`` naming the field, ``STO-C042`` for the redundancy.
        TrustError: ``STO-D…`` when the arguments are not a well-formed value.
    """
    check_form(request)
    for name in request.blobs:
        check_digest(name)
    facts = read(request.arguments)
    if request.map_items and facts.items != request.map_items:
        raise _refuse("arguments", f"must be a list of {request.map_items} calls")
    return Draft(request, request_digest(request), _redundancy(request), facts.types)


def _refuse(field: str, rule: str) -> UsageError:
    return UsageError("STO-R010", f"the request's {field} {rule}")


def _check_sizes(request: pb.CreateTaskRequest) -> None:
    bounds = (
        ("task_module", len(request.task_module), BOUNDS.source_bytes),
        ("validator_module", len(request.validator_module), BOUNDS.source_bytes),
        ("arguments", len(request.arguments), BOUNDS.inline_arguments_bytes),
        ("blobs", len(request.blobs), BOUNDS.blobs_per_task),
        ("label", len(request.label), BOUNDS.name_chars),
        ("level", len(request.level), BOUNDS.name_chars),
        ("flavor", len(request.flavor), BOUNDS.name_chars),
        ("map_items", request.map_items, BOUNDS.map_items),
        ("topics", len(request.topics), MAX_TOPICS),
    )
    for field, size, bound in bounds:
        if size > bound:
            raise _refuse(field, f"is {size}, the most is {bound}")
    if not request.task_module:
        raise _refuse("task_module", "is empty")


def _check_names(request: pb.CreateTaskRequest) -> None:
    if not is_key(request.idempotency_key):
        raise _refuse("idempotency_key", "must be 1 to 64 of A-Z a-z 0-9 . _ : -")
    names: tuple[tuple[str, str, bool], ...] = (
        ("entry", request.entry, True),
        ("init_entry", request.init_entry, False),
        ("compare_entry", request.compare_entry, False),
    )
    for field, name, needed in names:
        if (needed or name) and (
            len(name) > BOUNDS.name_chars or not name.isidentifier()
        ):
            raise _refuse(field, "is not a function's name")
    for topic in request.topics:
        if not _TOPIC.fullmatch(topic):
            raise _refuse("topics", "must be words of A-Z a-z 0-9 . _ / + -")
    if (request.init_entry or request.compare_entry) and not request.validator_module:
        raise _refuse("validator_module", "is empty but a validator is named")


def _redundancy(request: pb.CreateTaskRequest) -> Redundancy:
    if not request.HasField("redundancy"):
        return Redundancy()
    options = request.redundancy
    redundancy = Redundancy(
        **{
            field.name: getattr(options, field.name)
            for field in dataclasses.fields(Redundancy)
        }
    )
    check_redundancy(redundancy)
    if redundancy.delay_bound_s > LONGEST_DELAY_S:
        raise _refuse("delay_bound_s", f"may be {LONGEST_DELAY_S} s at most")
    return redundancy


def limits_in_force(requested: pb.RunLimits, level: Level) -> RunLimits:
    """Return the limits of a task at `level`; 0 means the level's default.

    Raises:
        UsageError: ``STO-R010`` when the level does not allow as much.
    """
    default, largest = level.default_limits(), level.max_limits()
    chosen: dict[str, int] = {}
    for field in dataclasses.fields(RunLimits):
        wanted, most = getattr(requested, field.name), getattr(largest, field.name)
        if wanted > most:
            raise UsageError(
                "STO-R010",
                f"{field.name}={wanted} is more than level {level.name} allows",
                hint=f"the most is {most}",
            )
        chosen[field.name] = wanted or getattr(default, field.name)
    return RunLimits(**chosen)


LevelLookup = Callable[[str], "Level"]
"""Level by name, as `stoilo.policies.levels.load_level`."""

FlavorLookup = Callable[[str, str, tuple[str, ...]], str]
"""(flavor asked for or empty, level, import names of the libraries needed) → id of the
manifest; raises `UsageError`."""

HeldLibraries = Callable[[], tuple[str, ...]]
"""Import names of the libraries that the project's flavors in force hold."""

LibraryLookup = Callable[[str, str], tuple[str, ...]]
"""(id of a flavor, level) → digests of the libraries that an admission names."""
