from __future__ import annotations

import typing
from typing import Any

from stoilo import low_level
from stoilo.low_level import flavors, redundancy


def test_task_result_is_the_union_of_the_thesis() -> None:
    expected = typing.Union[Any, low_level.UserError, low_level.SystemError]  # noqa: UP007
    assert low_level.TaskResult == expected


def test_ready_made_options_have_both_names() -> None:
    assert redundancy.TRIVIAL_OPTIONS is redundancy.TRIVIAL
    assert redundancy.CLASSIC_OPTIONS is redundancy.CLASSIC


def test_flavors_name_what_is_shipped() -> None:
    assert flavors.DEFAULT == ""
    assert {"pure", "numeric"} <= set(flavors.names())
