"""Update functions: through the gate, commuting, the same ones at every opening."""

import numpy as np
import pytest

from stoilo.core.errors import PolicyRefusal, StoiloError, UsageError
from stoilo.learn.store.functions import Probe, built_in, check_value, register

NUMBERS = Probe(1.0, 2.0, 3.0)


def smallest(value, change):
    return np.minimum(value, change)


def replace(_value, change):
    return change


def into_place(value, change):
    value["a"] = value["a"] + change["a"]
    return value


def write_a_file(value, change):
    open("/tmp/x", "w").write(str(change))  # noqa: SIM115, PTH123
    return value


def run_a_program(value, change):
    import subprocess  # noqa: PLC0415

    subprocess.run(["true"], check=True)
    return value + change


def test_function_that_commutes_is_registered_with_its_sources_digest():
    found = register("smallest", smallest, NUMBERS)
    assert found.level == "numeric"
    assert found.digest == register("other", smallest, NUMBERS).digest
    assert found.apply(np.array([1.0, 5.0]), 3.0).tolist() == [1.0, 3.0]


@pytest.mark.parametrize("function", [write_a_file, run_a_program])
def test_source_that_the_gate_refuses_is_refused(function):
    with pytest.raises(StoiloError) as caught:
        register("bad", function, NUMBERS)
    assert isinstance(caught.value, PolicyRefusal | UsageError)
    assert caught.value.code.startswith(("STO-T070", "STO-C"))


def test_function_whose_order_matters_is_refused():
    with pytest.raises(UsageError, match="STO-T070"):
        register("replace", replace, NUMBERS)


def test_function_that_changes_its_argument_is_refused():
    with pytest.raises(UsageError, match="STO-T070"):
        register("into", into_place, Probe({"a": 1}, {"a": 2}, {"a": 3}))


def add_into_the_middle(value, change):
    found = value + change
    value[500] += change[500]
    return found


def test_function_that_changes_a_long_array_where_repr_shows_none_is_refused():
    long = Probe(np.zeros(2000), np.zeros(2000), np.full(2000, 1e-13))
    assert repr(long) == repr(Probe(np.zeros(2000), np.zeros(2000), long.other))
    with pytest.raises(UsageError, match="STO-T070"):
        register("middle", add_into_the_middle, long)


@pytest.mark.parametrize(
    ("name", "value", "change", "after"),
    [
        ("add", 2, 3, 5),
        ("max", 2, 3, 3),
        ("count", {"a": 1}, {"a": 2, "b": 1}, {"a": 3, "b": 1}),
        ("merge", {"a": 5}, {"a": 2, "b": 1}, {"a": 5, "b": 1}),
    ],
)
def test_built_in_functions_do_what_they_say(name, value, change, after):
    assert check_value(name, value, built_in()[name].apply(value, change)) == after


def test_arrays_keep_type_and_shape():
    before = np.zeros(3, np.float32)
    assert check_value("f", before, np.ones(3)).dtype == np.float32
    with pytest.raises(UsageError, match="STO-T068"):
        check_value("f", before, np.ones(4))


@pytest.mark.parametrize("after", [None, "x", {"a": 1}, [1]])
def test_result_of_another_kind_is_refused(after):
    with pytest.raises(UsageError, match="STO-T068"):
        check_value("f", 1.0, after)
