"""The built file: strict, and its absence is fatal in a frozen program only."""

import base64

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import TrustError
from stoilo.executor.verifier.targets import Floors
from stoilo.executor.verifier.trust import Built, load_built, parse_built, render_built

BUILT = Built(
    format="stoilo-built/1",
    part="verifier",
    platform="x86_64-linux",
    version="0.2.0",
    serial=3,
    commit="ab12",
    root=base64.b64encode(b"{}").decode(),
    origin="example.org/log",
    floors=Floors(root=2, serials={"pure": 4}),
)


def test_rendered_file_parses_to_the_same():
    assert parse_built(render_built(BUILT)) == BUILT
    assert BUILT.root_bytes() == b"{}"


@pytest.mark.parametrize(
    "change",
    [
        {"format": "stoilo-built/2"},
        {"part": "launcher"},
        {"serial": 0},
        {"root": "%%"},
        {"root": ""},
        {"surprise": 1},
        {"floors": {"serials": {"UPPER": 1}}},
    ],
)
def test_changed_field_is_refused(change):
    row = msgspec.to_builtins(BUILT) | change
    with pytest.raises(TrustError) as caught:
        parse_built(msgspec.json.encode(row))
    assert caught.value.code == "STO-F035"


@given(st.binary(max_size=200))
def test_any_bytes_end_in_a_value_or_our_error(data):
    with pytest.raises(TrustError):
        parse_built(data)


def test_unfrozen_program_without_the_file_has_none(tmp_path):
    assert load_built(tmp_path / "built.json") is None
    assert load_built() is None


def test_frozen_program_without_the_file_refuses(tmp_path):
    with pytest.raises(TrustError) as caught:
        load_built(tmp_path / "built.json", frozen=True)
    assert caught.value.code == "STO-F035"


def test_present_file_is_read(tmp_path):
    (tmp_path / "built.json").write_bytes(render_built(BUILT))
    assert load_built(tmp_path / "built.json", frozen=True) == BUILT
