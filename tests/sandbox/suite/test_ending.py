import pytest

from stoilo.sandbox.suite.case import Header, Stop
from stoilo.sandbox.suite.report import Ending, is_denied_by_kernel, is_expected

GUARD = Ending("refused", "language", ("STO-G101",))
KILLED = Ending("killed", "kernel", ("STO-S010",), syscall="openat")
DENIED = Ending("user_error", "language", ("STO-G200",), error="PermissionError: no")
LIMIT = Ending("killed", "limits", ("STO-S011",), limit="cpu_s")
JUDGED = Ending("ok", "validation", verdict="raised")
WELL = Ending("ok")


def header(stop, **keys):
    return Header(idea="x", stopped_by=Stop(stop), **keys)


@pytest.mark.parametrize(
    ("wanted", "ending"),
    [
        (header(""), WELL),
        (header("language", code="STO-G101"), GUARD),
        (header("language"), WELL),
        (header("kernel", syscall="openat"), KILLED),
        (header("kernel", error="PermissionError"), DENIED),
        (header("kernel"), DENIED),
        (header("limits", limit="cpu_s"), LIMIT),
        (header("limits"), LIMIT),
        (header("validation", verdict="raised"), JUDGED),
    ],
)
def test_ending_that_the_header_names_is_expected(wanted, ending):
    assert is_expected(wanted, ending)


@pytest.mark.parametrize(
    ("wanted", "ending"),
    [
        (header(""), GUARD),
        (header("gate", code="STO-G101"), GUARD),
        (header("language", code="STO-G102"), GUARD),
        (header("language", code="STO-G101"), WELL),
        (header("kernel", syscall="socket"), KILLED),
        (header("kernel", error="RuntimeError"), DENIED),
        (header("limits", limit="wall_s"), LIMIT),
        (header("limits", limit="cpu_s"), WELL),
        (header("validation", verdict="not_bool"), JUDGED),
        (header("validation"), Ending("ok", verdict="true")),
        (header("result", code="STO-S021"), WELL),
    ],
)
def test_other_ending_is_not_expected(wanted, ending):
    assert not is_expected(wanted, ending)


@pytest.mark.parametrize(
    ("ending", "tried"), [(KILLED, True), (LIMIT, True), (DENIED, True), (GUARD, False)]
)
def test_program_that_never_met_the_kernel_layer_proves_nothing_about_it(ending, tried):
    assert is_denied_by_kernel(ending) is tried
