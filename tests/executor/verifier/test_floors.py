"""Floors rise with every verified release and never fall, over restarts too."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import PolicyRefusal, TrustError
from stoilo.executor.verifier.admission import check_verifier_floor
from stoilo.executor.verifier.host_verifier import raise_floors
from stoilo.executor.verifier.targets import ArchiveFile, Floors, FloorsFile, PartFile
from tests.support.gate import FLAVOR, host_state, verify_bundle

numbers = st.integers(0, 2**31)
floors = st.builds(
    Floors,
    numbers,
    numbers,
    numbers,
    numbers,
    st.dictionaries(st.sampled_from("abc"), numbers),
    numbers,
)


def released(gate, **changes):
    return dataclasses.replace(gate.root.trust, **changes)


@given(floors, floors)
def test_raised_floors_are_never_below_either(one, other):
    raised = raise_floors(one, other)
    assert raise_floors(raised, one) == raised == raise_floors(raised, other)
    assert raised.serials.keys() == one.serials.keys() | other.serials.keys()


@pytest.mark.parametrize(
    ("serial", "own", "project", "refused"),
    [
        (2, 0, 3, True),
        (2, 3, 1, True),
        (3, 3, 3, False),
        (0, 9, 9, False),  # unfrozen: has no serial
    ],
)
def test_verifier_below_a_floor_is_asked_to_update(gate, serial, own, project, refused):
    trust = released(gate, floors=FloorsFile(verifier=project))
    host = host_state(serial=serial, floors=Floors(serials={"verifier": own}))
    if not refused:
        check_verifier_floor(trust, host)
        return
    with pytest.raises(PolicyRefusal) as caught:
        check_verifier_floor(trust, host)
    assert caught.value.code == "STO-A090"
    assert "please update" in str(caught.value)


def part(serial=4):
    return PartFile(
        format="stoilo-part/1",
        part="pure",
        platform="x86_64-linux",
        version="1",
        serial=serial,
        archive=ArchiveFile(name="a.tar.xz", size=1, sha256="a" * 64),
        tree="b" * 64,
        python="3.11",
        flavor=FLAVOR,
    )


@pytest.mark.parametrize(
    ("floors", "denied", "code"),
    [
        (Floors(serials={"pure": 5}), (), "STO-A047"),
        (Floors(), ("a" * 64,), "STO-A046"),
        (Floors(), ("b" * 64,), "STO-A046"),
        (Floors(serials={"pure": 4, "numeric": 9}), ("c" * 64,), ""),
    ],
)
def test_runtime_below_its_floor_or_withdrawn_is_refused(gate, floors, denied, code):
    trust = released(gate, parts=(part(),), denied=frozenset(denied))
    host = host_state(
        platform="x86_64-linux", floors=floors, flavors=frozenset({FLAVOR})
    )
    bundle = gate.bundle(gate.admit(gate.statement()))
    if not code:
        verify_bundle(bundle, trust, host, gate.now)
        return
    with pytest.raises(TrustError) as caught:
        verify_bundle(bundle, trust, host, gate.now)
    assert caught.value.code == code
