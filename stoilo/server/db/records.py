"""Frozen records between the server's parts; what the tables hold, by name."""

from __future__ import annotations

import msgspec

from stoilo.core.limits import RunLimits
from stoilo.core.types import Redundancy, TaskState


class Owner(msgspec.Struct, frozen=True):
    """An authenticated caller.

    Attributes:
        account_id: row of the account.
        name: the account's name, never shown to others.
        role: one of `stoilo.server.admission.tokens.Role`.
        scope: ``*`` or a comma-separated list of RPC names.
        salt: secret of the account's public commitments (64 hex digits).
        suspended: whether the account may only look after what it has.
    """

    account_id: int
    name: str
    role: str
    scope: str
    salt: str
    suspended: bool = False


class TaskSpec(msgspec.Struct, frozen=True):
    """Everything about a task that never changes; digests name rows of ``content``.

    Attributes:
        task_module: digest of the source that runs.
        entry: function called with one dict.
        validator_module: digest of the validators' source, empty when there is none.
        init_entry: initial validator, empty = always true.
        compare_entry: comparator, empty = equality.
        arguments: digest of the encoded skeleton.
        blobs: digests in the order in which the arguments use them.
        level: what the gate chose.
        policy_digest: the policy that admitted the source.
        source_digest: what the verdict was about.
        flavor: id of the manifest (SHA-256 hex).
        redundancy: copies and agreement.
        limits: limits in force, level defaults applied.
        label: the researcher's own words.
        publish_source: the submitter's recorded choice.
        map_items: 0 = one call.
        topics: what the work is about.
        codes: codes of the gate's findings, for the public record.
    """

    task_module: str
    entry: str
    validator_module: str
    init_entry: str
    compare_entry: str
    arguments: str
    blobs: tuple[str, ...]
    level: str
    policy_digest: str
    source_digest: str
    flavor: str
    redundancy: Redundancy
    limits: RunLimits
    label: str = ""
    publish_source: bool = False
    map_items: int = 0
    topics: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()


class TaskRow(msgspec.Struct, frozen=True):
    """One task as stored."""

    task_id: str
    account_id: int
    request_digest: str
    state: TaskState
    attempt: int
    spec: TaskSpec
    created_at: int
    finished_at: int | None = None


class AttemptRow(msgspec.Struct, frozen=True):
    """One attempt as stored; fields fill from left to right as it advances."""

    task_id: str
    number: int
    state: str
    created_at: int
    policy_digest: str = ""
    admitted_at: int | None = None
    not_after: int | None = None
    statement: bytes | None = None
    leaf: bytes | None = None
    log_index: int | None = None
    proof: bytes | None = None
    envelope: bytes | None = None
    last_code: str = ""

    @property
    def workunit(self) -> str:
        """Name of the attempt's only workunit."""
        return f"{self.task_id}_{self.number}"


class ItemResult(msgspec.Struct, frozen=True):
    """Outcome of one item of a map task (wire names of `ItemOutcome`)."""

    state: TaskState
    value: bytes | None = None
    error_type: str = ""
    error_text: str = ""
    code: str = ""
    value_blob: str = ""


class Outcome(msgspec.Struct, frozen=True):
    """The one final outcome of a task (I6).

    Attributes:
        state: one of the five final states.
        attempt: the attempt that decided.
        value: encoded skeleton when succeeded and small.
        value_blob: else the digest of the stored blob.
        error_type: class name of the task's exception.
        error_text: bounded text of it, or the reason of a system error.
        code: stable code, empty when succeeded.
        output: captured print of the canonical result.
        items: outcomes by item for map tasks.
        agreeing: copies that agreed on it; not stored but in the public record.
    """

    state: TaskState
    attempt: int
    value: bytes | None = None
    value_blob: str = ""
    error_type: str = ""
    error_text: str = ""
    code: str = ""
    output: str = ""
    items: tuple[ItemResult, ...] = ()
    agreeing: int = 0


class Reviews(msgspec.Struct, frozen=True):
    """The reviewers' signatures that an attempt is admitted with.

    Attributes:
        texts: DSSE envelopes, one a reviewer.
        not_after: when the first of them ends, s; None without any.
    """

    texts: tuple[str, ...] = ()
    not_after: int | None = None


NO_REVIEWS = Reviews()
