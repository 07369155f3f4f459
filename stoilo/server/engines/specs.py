"""What every engine asks of a workunit before anything is stored; pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from stoilo.core.digests import check_digest
from stoilo.core.errors import StoiloError, UsageError
from stoilo.core.types import check_redundancy

if TYPE_CHECKING:
    from stoilo.server.engines.interface import WorkunitSpec

__all__ = ["APP_CHARS", "check_spec"]

APP_CHARS: Final = 32
_WORKUNIT_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_OPEN_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,59}")


def check_spec(spec: WorkunitSpec) -> None:
    """Raise ``STO-E001`` unless a workunit can be made from `spec`."""
    names = [file.open_name for file in spec.files]
    checks = (
        (_WORKUNIT_NAME.fullmatch(spec.name), "the name is not usable"),
        (".." not in spec.name, "the name is not usable"),
        (
            _OPEN_NAME.fullmatch(spec.app) and len(spec.app) <= APP_CHARS,
            "no usable app",
        ),
        (all(map(_OPEN_NAME.fullmatch, names)), "an open name is not usable"),
        (len(set(names)) == len(names), "two files have one open name"),
        (spec.result_max_bytes > 0, "result_max_bytes must be positive"),
        (0 < spec.fpops_est <= spec.fpops_bound, "fpops_est <= fpops_bound"),
    )
    for holds, problem in checks:
        if not holds:
            raise UsageError("STO-E001", f"workunit {spec.name[:100]!r}: {problem}")
    try:
        check_redundancy(spec.redundancy)
        for file in spec.files:
            check_digest(file.digest)
    except StoiloError as error:
        raise UsageError(
            "STO-E001", f"workunit {spec.name!r}: {error.message}"
        ) from error
