import numpy as np
import pytest

SOURCE = "import numpy as np\nimport numpy.ma as ma\ndef run(d):\n    return {}\n"


def value(layer, expression):
    return layer.value(SOURCE.replace("{}", expression))


@pytest.mark.parametrize(
    "expression",
    [
        "isinstance(ma.array([1]), ma.MaskedArray)",
        "isinstance(ma.masked_array([1], [0]), np.ndarray)",
        "type(ma.array([1])) is ma.MaskedArray",
        "ma.array([1]).baseclass is np.ndarray",
        "issubclass(type(ma.array([1])), ma.MaskedArray)",
        "not hasattr(ma.array([1]), 'ids')",
        "ma.array([1, 2], mask=[0, 1])[1] is ma.masked",
        "type(ma.array([1]).view(np.ndarray)) is np.ndarray",
        "type(np.ones(2).view(ma.MaskedArray)) is ma.MaskedArray",
        "type(np.ones((1, 1)).view(type=np.matrix)) is np.matrix",
        "np.zeros(2, dtype=[('a', 'i4')]).view(np.recarray).a.tolist() == [0, 0]",
    ],
)
def test_masked_arrays_look_as_numpys(numeric_language, expression):
    assert value(numeric_language, expression) is True


@pytest.mark.parametrize(
    "expression",
    ["ma.empty(99)", "ma.masked_all(99).data", "ma.empty_like(np.ones(9))"],
)
def test_new_masked_array_holds_zeros(numeric_language, expression):
    dirty = [np.full(99, 7.5) for _ in range(99)]
    del dirty
    assert value(numeric_language, f"bool(np.asarray({expression}).any())") is False


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("m.mask = [1, 0]", ""),
        ("m.fill_value = 3", ""),
        ("m.strides = (8,)", "STO-G102"),
    ],
)
def test_mask_may_be_assigned_and_strides_may_not(numeric_language, statement, code):
    source = (
        "import numpy.ma as ma\ndef run(d):\n"
        f"    m = ma.array([1, 2])\n    {statement}\n    return 1"
    )
    frame, _ = numeric_language.call(source)
    assert frame["code"] == code
