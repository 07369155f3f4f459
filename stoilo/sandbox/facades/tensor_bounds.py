"""Functions of torch whose kernels trust an argument: it is looked at before they run.

Found by calling everything that a task can reach with nonsense. Each of these read or
wrote outside of its tensors.
"""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["guard_bounds", "set_rng_state"]

_STATE_HEAD = 24  # bytes: the seed, words left, whether seeded, the next word's place
_STATE_WORDS = 624
_library: Any = torch
_ctc_loss: Any = torch.ctc_loss
_pad_packed: Any = _library._VF._pad_packed_sequence  # noqa: SLF001 - what nn.utils.rnn calls


def ctc_loss(
    log_probs: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    *more: Any,
    **options: Any,
) -> torch.Tensor:
    """``torch.ctc_loss``: a target is the number of a class."""
    used = targets
    if used.dim() > 1:  # what pads them may be anything
        place = torch.arange(used.shape[1])
        used = used[place < torch.as_tensor(target_lengths).reshape(-1, 1)]
    if (
        used.numel()
        and not 0 <= int(used.min()) <= int(used.max()) < log_probs.shape[-1]
    ):
        raise RuntimeError("ctc_loss: a target is the number of no class")
    found: torch.Tensor = _ctc_loss(
        log_probs, targets, input_lengths, target_lengths, *more, **options
    )
    return found


def pad_packed_sequence(data: Any, batch_sizes: Any, *more: Any) -> Any:
    """``torch._VF._pad_packed_sequence``: sizes fall, and say what the data hold."""
    sizes = [int(size) for size in batch_sizes]
    falling = all(size > 0 for size in sizes) and sizes == sorted(sizes, reverse=True)
    if not falling or sum(sizes) != len(data):
        raise RuntimeError("the batch sizes of a packed sequence do not fit its data")
    return _pad_packed(data, batch_sizes, *more)


def set_rng_state(new_state: torch.Tensor) -> None:
    """``torch.set_rng_state`` of a state that stands within its table of 624 words.

    The library believes how many words are left and which is next, and reads on.
    """
    if not isinstance(new_state, torch.Tensor):
        raise TypeError("the state of a generator is a tensor")
    if new_state.dtype != torch.uint8 or new_state.numel() < _STATE_HEAD:
        raise TypeError("the state of a generator is a tensor of its bytes")
    kept = new_state.detach().clone().reshape(-1)
    left = int(kept[8:12].clone().view(torch.int32)[0])
    place = int(kept[16:24].clone().view(torch.int64)[0])
    if not (left > 0 <= place and left + place <= _STATE_WORDS + 1):
        raise RuntimeError("the state of a generator points outside of its own table")
    torch.set_rng_state(kept)


def guard_bounds() -> None:
    """Put the checks where the library's own Python code finds them."""
    _library.ctc_loss = ctc_loss
    _library._VF._pad_packed_sequence = pad_packed_sequence  # noqa: SLF001 - see above
