"""Looking for a quorum among results (after BOINC's ``check_set``), pure.

BOINC takes a majority of the quorum for enough (``min_quorum / 2 + 1``). Here all of
`min_quorum` must agree, which is what a researcher reads in the word.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Judgement", "judge"]


@dataclass(frozen=True, slots=True)
class Judgement:
    """Result of looking for a quorum.

    Attributes:
        canonical: name of the canonical copy, empty when no quorum agrees.
        same: copies that agree with it, itself included.
    """

    canonical: str
    same: tuple[str, ...] = ()


def judge(
    names: tuple[str, ...], quorum: int, same: Callable[[str, str], bool]
) -> Judgement:
    """Look for a copy that at least `quorum` copies, itself included, agree with.

    Candidates are tried in order; `same` is called with the candidate first and is not
    assumed to be symmetric or transitive. With a quorum of 1 nobody is compared.
    """
    if quorum == 1:
        return Judgement(names[0], names[:1]) if names else Judgement("")
    for candidate in names:
        agree = [
            other for other in names if other == candidate or same(candidate, other)
        ]
        if len(agree) >= quorum:
            return Judgement(candidate, tuple(agree))
    return Judgement("")
