"""What the zygote asks of the processor: no guessing across processes.

Optional and reported. The kernel's word on speculation counts for this process and what it
forks; a task has no secret in its own memory, so what matters is what it could learn from
others: indirect branches. Source: the kernel's userspace-api/spec_ctrl.
"""

from __future__ import annotations

from collections.abc import Callable

from stoilo.sandbox import libc

__all__ = ["LAYER", "restrict_speculation"]

LAYER = "speculation_indirect_branch"
_PR_GET_SPECULATION_CTRL, _PR_SET_SPECULATION_CTRL = 52, 53
_INDIRECT_BRANCH = 1
_CONTROLLABLE, _DISABLED, _FORCE_DISABLE = 1, 1 << 2, 1 << 3


def restrict_speculation(prctl: Callable[..., int] = libc.prctl) -> bool:
    """Keep indirect branches of this process and its children from being steered.

    Args:
        prctl: prctl(2); a test passes a kernel of its own.

    Returns:
        Whether that is in force; not where the kernel leaves no choice to a process.
    """
    try:
        state = prctl(_PR_GET_SPECULATION_CTRL, _INDIRECT_BRANCH)
        if state & (_DISABLED | _FORCE_DISABLE):
            return True
        if not state & _CONTROLLABLE:
            return False
        prctl(_PR_SET_SPECULATION_CTRL, _INDIRECT_BRANCH, _FORCE_DISABLE)
    except OSError:
        return False
    return True
