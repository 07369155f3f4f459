"""``str.format`` whose fields obey the attribute rule (CVE-2023-41039 and kin)."""

from __future__ import annotations

import string
from _string import formatter_field_name_split  # type: ignore[import-not-found]  # CPython's own C module
from collections.abc import Callable
from typing import Any

from stoilo.core.errors import PolicyRefusal
from stoilo.sandbox.rules import NameKind, attribute_kind

__all__ = ["check_template", "guarded_format"]

_parse = string.Formatter().parse
_MAX_NESTING = 2  # CPython's own limit


def check_template(template: str, depth: int = _MAX_NESTING) -> None:
    """Raise ``STO-G103`` when a field of `template` reads an attribute not plain."""
    for _, field, specification, _ in _parse(template):
        if field is None:
            continue
        for is_attribute, name in formatter_field_name_split(field)[1]:
            if is_attribute and attribute_kind(name) is not NameKind.PLAIN:
                raise PolicyRefusal(
                    "STO-G103",
                    f"a format field cannot read the attribute {name[:64]!r}",
                )
        if specification and depth > 0:
            check_template(specification, depth - 1)


def guarded_format(value: Any, name: str) -> Callable[..., str]:  # noqa: ANN401
    """Return ``value.format`` or ``value.format_map`` behind `check_template`.

    `value` is a string, or a string class whose unbound method is asked for.
    """
    method = getattr(value, name)
    if not isinstance(value, type):
        template = str.__str__(value)

        def bound(*args: Any, **kwargs: Any) -> str:  # noqa: ANN401
            check_template(template)
            return str(method(*args, **kwargs))

        return bound

    def unbound(text: str, *args: Any, **kwargs: Any) -> str:  # noqa: ANN401
        check_template(str.__str__(text))
        return str(method(text, *args, **kwargs))

    return unbound
