from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import StoiloError, UsageError
from stoilo.core.frozen_tree import platform_name
from stoilo.flavors import lock as locks
from stoilo.flavors.lock import (
    Lock,
    LockedWheel,
    base_requirements,
    check_lock,
    load_lock,
    parse_lock,
    render_lock,
    resolve_lock,
)
from stoilo.flavors.manifest import shipped_flavors

GOOD = (
    b"# stoilo-lock/1 pure x86_64-linux python 3.11\n"
    b"a-b==1.0+cpu --hash=sha256:" + b"0" * 64 + b"  # a_b-1.0+cpu-py3-none-any.whl\n"
)
WHEEL = LockedWheel("a-b", "1.0+cpu", "0" * 64, "a_b-1.0+cpu-py3-none-any.whl")
LOCK = Lock("pure", "x86_64-linux", "3.11", (WHEEL,))


def test_lock_is_one_wheel_a_line_with_its_digest():
    assert render_lock(LOCK) == GOOD
    assert parse_lock(GOOD) == LOCK


@pytest.mark.parametrize("part", ["pure", "numeric", "tensor", "verifier", "tools"])
def test_committed_lock_is_in_its_form_and_names_no_index(part):
    data = load_lock(part, "x86_64-linux")
    assert render_lock(parse_lock(data)) == data
    assert b"://" not in data
    assert all(wheel.file.endswith(".whl") for wheel in parse_lock(data).wheels)


@pytest.mark.parametrize("flavor", shipped_flavors(), ids=lambda flavor: flavor.name)
def test_committed_lock_holds_what_its_flavor_asks_for(flavor):
    lock = parse_lock(load_lock(flavor.name, "x86_64-linux"))
    asked = (*base_requirements("runtime"), *flavor.requirements)
    check_lock(lock, asked, flavor.python)


def test_runtime_and_verifier_use_the_versions_that_are_tested():
    pinned = (Path(__file__).parents[2] / "requirements/dev.txt").read_text().lower()
    for one in (*base_requirements("runtime"), *base_requirements("verifier")):
        assert f"{one.lower()} \\" in pinned


@pytest.mark.parametrize(
    "data",
    [
        b"",
        GOOD[:-1],
        GOOD.replace(b"lock/1", b"lock/2"),
        GOOD.replace(b"a-b", b"A_B"),
        GOOD.replace(b"==", b">="),
        GOOD.replace(b" --hash=sha256:" + b"0" * 64, b""),
        GOOD.replace(b".whl", b".tar.gz"),
        GOOD + GOOD.split(b"\n")[1] + b"\n",
        GOOD + b"--index-url https://example.org\n",
        GOOD + b"-e .\n",
        GOOD + b"\xff\n",
        b"#" * ((1 << 20) + 1),
    ],
)
def test_lock_in_another_form_is_refused(data):
    with pytest.raises(UsageError) as caught:
        parse_lock(data)
    assert caught.value.code == "STO-F007"


@given(st.binary(max_size=300))
def test_any_bytes_end_in_a_lock_or_our_error(data):
    try:
        parse_lock(data)
    except UsageError as error:
        assert error.code == "STO-F007"


@pytest.mark.parametrize(
    ("wanted", "python"),
    [(["a-b==2.0"], "3.11"), (["other==1.0"], "3.11"), (["A_b==1.0"], "3.12")],
)
def test_lock_of_another_set_is_out_of_date(wanted, python):
    check_lock(LOCK, ["A_b==1.0"], "3.11")
    with pytest.raises(UsageError) as caught:
        check_lock(LOCK, wanted, python)
    assert caught.value.code == "STO-F007"


def test_part_without_a_lock_for_its_platform_has_its_code():
    with pytest.raises(UsageError) as caught:
        load_lock("pure", "riscv64-linux")
    assert caught.value.code == "STO-F007"


REPORT = {
    "environment": {"python_version": "3.11"},
    "install": [
        {
            "metadata": {"name": "A_b", "version": "1.0+cpu"},
            "download_info": {
                "url": "https://example.org/x/a_b-1.0%2Bcpu-py3-none-any.whl",
                "archive_info": {"hashes": {"sha256": "0" * 64}},
            },
        }
    ],
}


def fake_pip(tmp_path, monkeypatch, text):
    program = tmp_path / "pip.py"
    program.write_text(text)
    monkeypatch.setattr(locks, "pip_command", lambda _: [sys.executable, str(program)])


def test_lock_is_resolved_from_pips_report(tmp_path, monkeypatch):
    fake_pip(tmp_path, monkeypatch, f"print({json.dumps(json.dumps(REPORT))})")
    found = resolve_lock("pure", "x86_64-linux", ["a-b==1.0"], Path(sys.executable))
    assert found == LOCK


def test_pip_that_finds_nothing_has_its_code(tmp_path, monkeypatch):
    fake_pip(tmp_path, monkeypatch, "import sys; sys.exit('ERROR: no wheel')")
    with pytest.raises(StoiloError, match="no wheel") as caught:
        resolve_lock("pure", platform_name(), ["a==1"], Path(sys.executable))
    assert caught.value.code == "STO-F011"
