"""The published schemas are those of the code, and say the same as the parsers."""

import json
from pathlib import Path

import pytest

from stoilo.cli.schemas import SCHEMAS, make_schema, render_schema
from stoilo.core.errors import UsageError

FOLDER = Path(__file__).parents[2] / "docs" / "reference" / "schemas"


@pytest.mark.parametrize("kind", SCHEMAS)
def test_published_copy_is_the_codes_own(kind: str) -> None:
    published = FOLDER / f"{kind}.schema.json"
    assert published.read_text() == render_schema(kind), "run `make docs`"


@pytest.mark.parametrize("kind", SCHEMAS)
def test_unknown_keys_are_refused_and_computed_ones_are_unknown(kind: str) -> None:
    made = make_schema(kind)
    assert made["additionalProperties"] is False
    assert not {"digest", "text"} & set(made["properties"])
    assert "Attributes:" not in json.dumps(made)


def test_patterns_are_of_the_schemas_own_dialect() -> None:
    text = render_schema("review")
    assert '"^[0-9a-f]{64}$"' in text
    assert "\\\\A" not in text


def test_levels_of_the_opt_in_are_listed() -> None:
    levels = make_schema("opt-in")["properties"]["max_level"]
    assert levels["enum"] == ["gpu", "numeric", "pure", "tensor"]
    assert "description" in levels


def test_unknown_kind_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="STO-U003"):
        make_schema("x")
