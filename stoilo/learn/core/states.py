"""Parts of a saved state: arrays under prefixes, plain values read with their types.

A state comes from the run's own checkpoint. Its types are checked all the same, so that a
checkpoint of another method or another version ends in one error: ``STO-T041``.
"""

from __future__ import annotations

from collections.abc import Mapping

from stoilo.core.errors import UsageError
from stoilo.learn.core.orders import Plain, Reply, Snapshot, State
from stoilo.learn.core.tensors import Array, Tensors, forms_of


def join(**groups: Tensors) -> dict[str, Array]:
    """Return all arrays of all groups, each named ``group:name``."""
    return {
        f"{group}:{name}": array
        for group, tensors in groups.items()
        for name, array in tensors.items()
    }


def pick(tensors: Tensors, group: str, like: Tensors | None = None) -> dict[str, Array]:
    """Return the arrays of one group; in names, forms and order of `like` if given."""
    start = f"{group}:"
    found = {
        name.removeprefix(start): array
        for name, array in tensors.items()
        if name.startswith(start)
    }
    if like is None:
        return found
    if forms_of(found) != forms_of(like):
        raise unfit(f"its {group} have other names, types or shapes")
    return {name: found[name] for name in like}


def join_states(**groups: State) -> State:
    """Return several states as one, each under its name."""
    tensors = {name: state.tensors for name, state in groups.items()}
    return State(join(**tensors), {n: dict(s.plain) for n, s in groups.items()})


def select(state: State, group: str) -> State:
    """Return one of the states that `join_states` joined.

    Raises:
        UsageError: ``STO-T041`` when there is none of that name.
    """
    return State(pick(state.tensors, group), read_table(state.plain, group))


def unfit(reason: str) -> UsageError:
    """Return the error for a state of another method, model or version."""
    return UsageError("STO-T041", f"the saved state does not fit this run: {reason}")


def read_int(plain: Mapping[str, Plain], name: str) -> int:
    """Return a whole number of a saved state."""
    match plain.get(name):
        case bool():
            pass
        case int(number):
            return number
    raise unfit(f"no whole number {name!r}")


def read_float(plain: Mapping[str, Plain], name: str) -> float:
    """Return a number of a saved state."""
    match plain.get(name):
        case bool():
            pass
        case int(number) | float(number):
            return float(number)
    raise unfit(f"no number {name!r}")


def read_keys(plain: Mapping[str, Plain], name: str) -> list[str]:
    """Return a list of texts of a saved state."""
    match plain.get(name):
        case list(entries):
            return [str(entry) for entry in entries]
    raise unfit(f"no list {name!r}")


def read_table(plain: Mapping[str, Plain], name: str) -> dict[str, Plain]:
    """Return a table of a saved state."""
    match plain.get(name):
        case dict(table):
            return table
    raise unfit(f"no table {name!r}")


def save_snapshot(snapshot: Snapshot) -> State:
    """Return a snapshot as a state."""
    groups = {"parameters": snapshot.parameters, "buffers": snapshot.buffers}
    return State(join(**groups), {"version": snapshot.version})


def load_snapshot(state: State, like: Snapshot) -> Snapshot:
    """Return what `save_snapshot` made a state of; names in the order of `like`."""
    return Snapshot(
        read_int(state.plain, "version"),
        pick(state.tensors, "parameters", like.parameters),
        pick(state.tensors, "buffers", like.buffers),
    )


def save_replies(replies: Mapping[str, Reply]) -> State:
    """Return replies that wait for their step, by their keys."""
    return join_states(**{key: _save_reply(reply) for key, reply in replies.items()})


def _save_reply(reply: Reply) -> State:
    plain: dict[str, Plain] = {
        "version": reply.version,
        "samples": reply.samples,
        "loss_sum": reply.loss_sum,
        "correct": reply.correct,
        "numbers": dict(reply.numbers),
    }
    return State(join(tensors=reply.tensors, buffers=reply.buffers), plain)


def load_replies(state: State) -> dict[str, Reply]:
    """Return what `save_replies` made a part of."""
    return {key: _load_reply(select(state, key)) for key in state.plain}


def _load_reply(state: State) -> Reply:
    plain, numbers = state.plain, read_table(state.plain, "numbers")
    return Reply(
        read_int(plain, "version"),
        read_int(plain, "samples"),
        read_float(plain, "loss_sum"),
        pick(state.tensors, "tensors"),
        pick(state.tensors, "buffers"),
        read_int(plain, "correct"),
        {name: read_float(numbers, name) for name in numbers},
    )
