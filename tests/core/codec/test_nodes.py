"""Python values to nodes and back."""

import sys
from datetime import datetime
from zoneinfo import ZoneInfo

import numpy as np
import pytest
import torch
from hypothesis import given

from stoilo.core.codec.nodes import FunctionRef, Tensor, from_node, to_node
from stoilo.core.codec.skeleton import decode, encode
from stoilo.core.errors import TrustError, UsageError
from tests.support.strategies import plain_values


def travel(value):
    return from_node(decode(encode(to_node(value))))


@given(plain_values)
def test_plain_value_travels_unchanged(value):
    assert encode(to_node(travel(value))) == encode(to_node(value))


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0).reshape(2, 3),
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.arange(12)[::3],
        np.array(3),
        np.zeros((0, 4)),
        np.arange(3, dtype=">i4"),
        np.array([True, False]),
        np.array(["a", "Ω"]),
        np.array([b"x"]),
        np.array(["2020-01-01"], dtype="M8[D]"),
        np.array([1 + 2j]),
        np.array([np.nan, np.inf]),
    ],
)
def test_array_travels_with_values_shape_and_dtype(array):
    back = travel(array)
    np.testing.assert_array_equal(back, array)
    assert back.dtype == array.dtype.newbyteorder("=")


def test_array_that_arrives_is_writable_and_its_own():
    back = travel(np.zeros(3))
    back[0] = 1
    assert back.flags.owndata or back.base.flags.owndata


@pytest.mark.parametrize(
    "scalar", [np.float32(2.5), np.int8(-3), np.bool_(1), np.str_("h")]
)
def test_numpy_scalar_keeps_its_type(scalar):
    back = travel(scalar)
    assert back == scalar
    assert type(back) is type(scalar)


@pytest.mark.parametrize(
    "tensor",
    [torch.ones(2, 3), torch.arange(4).reshape(2, 2).T, torch.zeros(0, 2), torch.tensor(1.5),
     torch.ones(3, dtype=torch.bfloat16), torch.nn.Parameter(torch.ones(2))],
)  # fmt: skip
def test_tensor_travels_with_values_and_dtype(tensor):
    back = travel(tensor)
    assert torch.equal(back, tensor)
    assert back.dtype == tensor.dtype


@pytest.mark.parametrize(
    "value",
    [
        object(),
        open,
        lambda: 0,
        range(3),
        np.array([object()]),
        (1).__class__,
        iter([]),
    ],
)
def test_foreign_value_is_refused(value):
    with pytest.raises(UsageError):
        to_node(value)


def test_named_time_zone_is_refused_with_advice():
    moment = datetime(2026, 1, 1, tzinfo=ZoneInfo("UTC"))
    with pytest.raises(UsageError, match="astimezone"):
        encode(to_node(moment))


def test_reference_outside_the_jail_is_refused():
    with pytest.raises(TrustError, match="STO-D002"):
        from_node([FunctionRef("f")])


def test_cycle_is_refused_not_followed():
    loop = {}
    loop["self"] = loop
    with pytest.raises(UsageError, match="STO-D005"):
        to_node(loop)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor([True, False]),
        torch.tensor([1 + 2j, 3j]).conj(),
        torch.complex(torch.ones(2, dtype=torch.double), torch.zeros(2).double()),
        torch.tensor([1.5, -2.0]).half(),
        torch.arange(3, dtype=torch.uint8),
        torch.arange(6.0).view(2, 3)[:, ::2],
        torch.ones(2, requires_grad=True) * 3,
    ],
)
def test_tensor_of_every_kind_travels_by_its_numbers(tensor):
    back = travel(tensor)
    assert torch.equal(back, tensor)
    assert back.dtype == tensor.dtype


def test_sparse_tensor_is_refused_with_advice():
    with pytest.raises(UsageError, match="STO-D001") as error:
        to_node(torch.eye(2).to_sparse())
    assert "to_dense" in error.value.hint


def test_what_libraries_return_becomes_plain_data():
    state = torch.nn.Linear(2, 1).state_dict()
    assert type(to_node(state)) is dict
    assert to_node(torch.ones(2, 3).shape) == (2, 3)


def test_missing_library_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(TrustError, match="STO-D011"):
        from_node(Tensor("float32", (0,), b""))


def test_module_as_a_result_is_refused_with_advice():
    with pytest.raises(UsageError, match="STO-D001") as error:
        to_node([torch.nn.Linear(1, 1)])
    assert "state_dict" in error.value.hint
