from stoilo.core.codec.nodes import Instance, Ndarray, NumpyScalar, Tensor, to_node
from stoilo.policies.levels import find_argument_types

ARRAY = Ndarray("int8", (1,), b"1")


def test_plain_values_need_no_library() -> None:
    node = to_node({"a": [1, 2.5, (None, b"x")], "b": {1, frozenset({2})}})
    assert find_argument_types(node) == ()


def test_arrays_are_found_however_deep_they_lie() -> None:
    node = {"a": [({"b": Instance("Model", {"w": ARRAY})},)]}
    assert find_argument_types(node) == ("numpy.ndarray",)


def test_every_library_type_has_its_name() -> None:
    node = [ARRAY, NumpyScalar("int8", b"1"), Tensor("int8", (1,), b"1"), ARRAY]
    assert find_argument_types(node) == (
        "numpy.generic",
        "numpy.ndarray",
        "torch.Tensor",
    )


def test_depth_is_no_trouble() -> None:
    node: object = ARRAY
    for _ in range(5000):
        node = [node]
    assert find_argument_types(node) == ("numpy.ndarray",)
