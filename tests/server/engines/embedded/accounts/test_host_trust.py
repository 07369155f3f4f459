from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.boinc.messages import HostInfo
from stoilo.server.engines.embedded.accounts.host_trust import (
    homogeneous_class,
    is_trusted,
)
from stoilo.server.engines.workunits import Homogeneity

LINUX, COARSE, FINE = "Linux Debian", Homogeneity.COARSE, Homogeneity.FINE
XEON = "Intel(R) Xeon(R) CPU E5-2670 0 @ 2.60GHz [Family 6 Model 45 Stepping 7]"


def host(os_name, vendor, model=""):
    return HostInfo(os_name=os_name, vendor=vendor, model=model)


@pytest.mark.parametrize(
    ("info", "coarse", "fine"),
    [
        (host(LINUX, "GenuineIntel", XEON), "linux x86", "linux intel xeon"),
        (
            host(LINUX, "AuthenticAMD", "AMD Ryzen 9 5950X"),
            "linux x86",
            "linux amd ryzen",
        ),
        (
            host("Microsoft Windows 11", "GenuineIntel", "Intel(R) Pentium(R) 4 CPU"),
            "windows x86",
            "windows intel pentium 4",
        ),
        (
            host("Darwin", "GenuineIntel", "Pentium [Family 4 Model 4]"),
            "darwin x86",
            "darwin intel pentium",
        ),
        (host("Android 14", "ARM", "Cortex"), "android arm", "android arm"),
        (host(LINUX, "", "ARMv8 rev 1"), "linux arm", "linux arm"),
        (host("Darwin", "Apple", "Apple M2"), "darwin arm", "darwin apple"),
        (host("Darwin", "Power Macintosh"), "darwin powerpc", "darwin powerpc"),
    ],
)
def test_class_of_host_is_its_system_and_processor(info, coarse, fine):
    assert homogeneous_class(info, COARSE) == coarse
    assert homogeneous_class(info, FINE) == fine


@pytest.mark.parametrize(
    "info",
    [HostInfo(), host("Linux", ""), host("", "GenuineIntel"), host("Minix", "x")],
)
@pytest.mark.parametrize("kind", [COARSE, FINE])
def test_host_that_does_not_say_enough_is_of_no_class(info, kind):
    assert homogeneous_class(info, kind) == ""


@given(st.text(), st.text(), st.text())
def test_any_description_ends_in_a_short_class(os_name, vendor, model):
    for kind in (COARSE, FINE):
        assert len(homogeneous_class(host(os_name, vendor, model), kind)) <= 64


@pytest.mark.parametrize(
    ("valid", "draw", "trusted"),
    [
        (9, 0.999, False),
        (10, 0.0999, False),
        (10, 0.1, True),
        (1000, 0.0009, False),
        (1000, 0.001, True),
        (0, 0.5, False),
    ],
)
def test_host_is_trusted_after_ten_but_for_one_in_its_record(valid, draw, trusted):
    assert is_trusted(valid, draw) is trusted
