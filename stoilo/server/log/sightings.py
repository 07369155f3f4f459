"""The checkpoints that executors send back, checked and kept for the log's monitors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoilo.audit.format.note import Note, parse_note, render_note, verify_signature
from stoilo.audit.format.records import task_commitment
from stoilo.audit.log.seen import SeenRow, open_seen, result_commitment
from stoilo.core.digests import Digest
from stoilo.core.errors import InternalError, StoiloError, TrustError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from stoilo.audit.format.note import NoteSignature, VerifierKey
    from stoilo.audit.format.policy import LogPolicy
    from stoilo.audit.log.seen import SeenStore
    from stoilo.executor.verifier.workunit import ResultHeader


class Sightings:
    """Records what each result's executor saw of the log.

    A checkpoint that the log's key signed is kept whatever it says: one of a tree that
    is not ours is the evidence that monitors look for.
    """

    def __init__(
        self,
        store: SeenStore,  # where rows go
        # whose signature a checkpoint needs; witnesses are not asked again
        policy: Callable[[], LogPolicy],
    ) -> None:
        self._store = store
        self._policy = policy

    def record(
        self,
        # of a hostile file, compared with the host's result already
        header: ResultHeader,
    ) -> None:
        """Keep the checkpoint of a result that ran, durably; repeats change nothing.

        Raises:
            TrustError: ``STO-L131`` when it states none that this log's key signed.
            InternalError: ``STO-R030`` when it cannot be kept: ask again later.
        """
        policy = self._policy()
        open_seen(header.checkpoint, policy)
        row = SeenRow(
            result=result_commitment(header.result),
            task=task_of(header.workunit),
            attempt=header.attempt,
            admission=Digest(header.admission),
            checkpoint=_signed_part(header.checkpoint, policy),
        )
        try:
            self._store.put(row)
        except (StoiloError, OSError) as error:
            raise InternalError(
                "STO-R030",
                f"a seen checkpoint cannot be kept: {error}",
                hint="results wait until audit/seen.sqlite can be written again",
            ) from error


def _signed_part(checkpoint: str, policy: LogPolicy) -> str:
    """Return a note without what no known key signed.

    Whoever reports results chooses those lines: published as they are, they would be a
    place for anybody's texts, in a store that never forgets.
    """
    note = parse_note(checkpoint.encode())
    rules = (policy, *(older.policy for older in policy.older))
    keys = {
        key for one in rules for key in (*one.logs, *(w.key for w in one.witnesses))
    }
    kept = (item for item in note.signatures if _is_signed(note.text, item, keys))
    return render_note(Note(note.text, tuple(dict.fromkeys(kept)))).decode()


def _is_signed(text: bytes, item: NoteSignature, keys: Iterable[VerifierKey]) -> bool:
    """Whether one of `keys` made this signature."""
    for key in keys:
        if (item.name, item.key_id) == (key.name, key.key_id):
            try:
                verify_signature(text, item, key)
            except TrustError:
                continue
            return True
    return False


def task_of(workunit: str) -> Digest:
    """Return the commitment of the task that a workunit's name begins with."""
    task_id, _, _ = workunit.rpartition("_")
    return task_commitment(task_id)
