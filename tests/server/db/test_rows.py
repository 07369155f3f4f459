from __future__ import annotations

from stoilo.server.db import schema
from stoilo.server.db.records import AttemptRow


def test_columns_of_an_attempt_lie_in_its_fields_order() -> None:
    names = tuple(column.name for column in schema.attempt.c)
    assert names == AttemptRow.__struct_fields__
