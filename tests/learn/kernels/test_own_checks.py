"""Our own checks in the server's process: the verdicts of the jail, on any answer."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stoilo.client.capture import capture_task
from stoilo.core.codec import skeleton
from stoilo.core.codec.nodes import Ndarray, item_bytes, to_node
from stoilo.learn.core.tensors import Form
from stoilo.learn.driver.acceptance import Expectation
from stoilo.learn.kernels.encoding import pack
from stoilo.policies.levels import load_level
from stoilo.sandbox.process import own_checks
from stoilo.server.validation.results import Opinion
from stoilo.server.validation.validators import (
    Call,
    ValidatorJails,
    ValidatorProgram,
    Validators,
)

FORMS = {"w": Form("float32", (3, 2)), "b": Form("float64", (2,))}
EXPECTED = Expectation(0, 3, FORMS, {"n": Form("int64", ())}, 0.0)
TOLD = {
    "raw": None,
    "compressed": {"codec": "compressed"},
    "ternary": {"codec": "levels", "base": 3, "norm": "max", "seed": 3, "block": 4},
}

NUMERIC = frozenset(load_level("numeric").modules)


def answer(user):
    return user


def make_program(name, level="numeric", more=b""):
    check, alike = EXPECTED.validator(TOLD[name]), EXPECTED.comparator(TOLD[name])
    found = capture_task(answer, {}, check, alike)
    source = found.validator_module.encode() + more
    return ValidatorProgram(source, found.init_entry, found.compare_entry, level)


def make_answer(name, **changes):
    rng = np.random.default_rng(5)
    tensors = {n: rng.normal(size=f.shape).astype(f.dtype) for n, f in FORMS.items()}
    packed = pack({"settings": {"transport": TOLD[name]}, "parameters": {}}, tensors)
    honest = {"version": 0, "samples": 3, "loss_sum": 1.5, "correct": -1}
    arrays = {"tensors": packed, "buffers": {"n": np.array(4)}}
    return {**honest, **arrays, **changes}


def encode(value):
    return skeleton.encode(to_node(value))


def ask(program, op, *values):
    entry = program.init_entry if op == "init" else program.compare_entry
    return own_checks.judge(
        program.source, frozenset(load_level(program.level).modules), op, entry, values
    )


@pytest.fixture(scope="module")
def jailed():
    """Validators whose programs have one byte more than ours: all of them are jailed."""
    jails = ValidatorJails()
    yield Validators(jails.of).decide
    jails.close()


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-4, 4), st.integers(), st.floats(), st.text()
)
NUMBERS = st.sampled_from([0.0, 1.0, -1.0, np.nan, np.inf, 1e-5, 3e38])
ARRAYS = st.builds(
    lambda dtype, shape, number: np.full(shape, number).astype(dtype),
    st.sampled_from(["float32", "float64", "uint8", "int64", "complex64", "bool"]),
    st.sampled_from([(3, 2), (2,), (), (0,), (6,), (2, 3)]),
    NUMBERS,
)


def flip(array, at, bits):
    found = array.copy()
    found[at % found.size] ^= bits
    return found


DAMAGED = st.builds(
    flip,
    st.sampled_from(list(make_answer("compressed")["tensors"].values())),
    st.integers(0, 40),
    st.integers(1, 255),
)
NAMES = st.sampled_from(["w", "b", "n", "", "other"])
SETS = st.dictionaries(NAMES, st.one_of(ARRAYS, DAMAGED, SCALARS), max_size=3)
FIELDS = ["version", "samples", "loss_sum", "tensors", "buffers", "correct", "more"]
CHANGES = st.dictionaries(
    st.sampled_from(FIELDS), st.one_of(SCALARS, SETS, ARRAYS), max_size=2
)


@pytest.mark.parametrize("name", TOLD)
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(changes=CHANGES)
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
def test_verdict_is_the_jails(jailed, name, changes):
    value = encode(make_answer(name, **changes))
    other = make_program(name, more=b"\n")
    found = ask(make_program(name), "init", value)
    assert found in {None, jailed(Call(other, "init", (value,)))}


@pytest.mark.parametrize("name", ["raw", "compressed"])
@pytest.mark.parametrize("factor", [1.0, 1 + 1e-6, 1.01, -1.0, 0.0])
def test_comparison_is_the_jails(jailed, name, factor):
    tensors = {n: np.ones(f.shape, f.dtype) * factor for n, f in FORMS.items()}
    packed = pack({"settings": {"transport": TOLD[name]}, "parameters": {}}, tensors)
    ones = {n: np.ones(f.shape, f.dtype) for n, f in FORMS.items()}
    first = pack({"settings": {"transport": TOLD[name]}, "parameters": {}}, ones)
    pair = [encode(make_answer(name, tensors=t)) for t in (first, packed)]
    found = ask(make_program(name), "compare", *pair)
    assert found is (abs(factor - 1) < 1e-4)
    other = make_program(name, more=b"\n")
    assert found is jailed(Call(other, "compare", tuple(pair)))


@pytest.mark.parametrize("name", TOLD)
def test_honest_answer_is_right_and_a_short_one_wrong(name):
    program = make_program(name)
    assert ask(program, "init", encode(make_answer(name))) is True
    assert ask(program, "init", encode(make_answer(name, tensors={}))) is False


def test_our_check_asks_no_jail():
    def no_jail(*_):
        raise AssertionError

    program, value = make_program("raw"), encode(make_answer("raw"))
    validators = Validators(no_jail)
    assert validators.decide(Call(program, "init", (value,))) is True
    with pytest.raises(AssertionError):  # the control: one byte more
        validators.decide(Call(make_program("raw", more=b"\n"), "init", (value,)))


@pytest.mark.parametrize(
    "literal",
    [
        b"{'tensors': {}, 'buffers': open('x')}",
        b"{'tensors': {}, 'buffers': {}}.copy()",
        b"{'tensors': {'w': ('float32', (99999, 99999))}, 'buffers': {}}",
        b"{'tensors': {'w': ('object', (2,))}, 'buffers': {}}",
        b"{'tensors': {((((((1))))))}, 'buffers': {}}",
        b"{'tensors': 2}",
        b"{" + b"1" * 5000 + b"$}",  # hangs where digits can be dealt to numbers anew
        b"{" + b"1" * 5000 + b"}",
        b"{" + b"'a'" * 5000 + b"$}",
        b"{" * 5000 + b"}" * 5000,
        b"{1, 2}",
    ],
)
def test_literal_that_is_not_plain_or_too_much_goes_to_the_jail(literal):
    source = make_program("raw").source
    line = next(x for x in source.splitlines() if x.startswith(b"expected = "))
    swapped = source.replace(line, b"expected = " + literal)
    value = encode(make_answer("raw"))
    assert own_checks.judge(swapped, NUMERIC, "init", "init_valid", (value,)) is None


def test_other_level_entry_or_value_goes_to_the_jail():
    program, value = make_program("raw"), encode(make_answer("raw"))
    assert ask(make_program("raw", level="pure"), "init", value) is None
    assert own_checks.judge(program.source, NUMERIC, "init", "arrive", (value,)) is None
    assert ask(program, "init", b"no value") is None
    assert ask(program, "init", encode([[1]])) is None
    assert (
        ask(program, "compare", value, encode(make_answer("raw", version=[]))) is None
    )


@pytest.mark.parametrize("dtype", ["S1", "U1", "int8", "bfloat16"])
def test_array_that_cannot_be_here_ends_nothing(dtype):
    data = b"\xff" * item_bytes(dtype)
    node = {**to_node(make_answer("raw")), "buffers": {"n": Ndarray(dtype, (), data)}}
    assert ask(make_program("raw"), "init", skeleton.encode(node)) in {None, False}


def test_comparison_of_a_value_without_the_form_goes_to_the_jail():
    program, value = make_program("raw"), encode(make_answer("raw"))
    assert (
        ask(program, "compare", value, encode(make_answer("raw", tensors={}))) is None
    )


def test_block_beyond_bounds_inside_another_codec_goes_to_the_jail():
    part = {"codec": "levels", "base": 3, "block": 1 << 40, "norm": "max", "seed": 3}
    told = {"codec": "both", "first": part, "rest": {"codec": "raw"}, "seed": 3}
    check = capture_task(answer, {}, EXPECTED.validator(told), None)
    source, value = check.validator_module.encode(), encode(make_answer("raw"))
    found = own_checks.judge(source, NUMERIC, "init", check.init_entry, (value,))
    assert found is None
    small = source.replace(str(1 << 40).encode(), b"4")
    found = own_checks.judge(small, NUMERIC, "init", check.init_entry, (value,))
    assert found is False


class CountedDocket:
    """Counts what is asked of it; it knows no answer."""

    def __init__(self):
        self.asked = 0

    def known(self, _matter, _call):
        self.asked += 1


@pytest.mark.parametrize(("size", "asked"), [(8, 0), (1000, 1)])
def test_check_that_decodes_no_more_than_arrived_waits_for_no_turn(size, asked):
    told, forms = {"codec": "largest", "share": 0.01}, {"w": Form("float64", (size,))}
    found = capture_task(answer, {}, Expectation(0, 3, forms, {}).validator(told))
    source = found.validator_module.encode()
    program = ValidatorProgram(source, found.init_entry, "", "numeric")
    docket = CountedDocket()
    opinion = Opinion(docket, None, program)
    assert opinion.accepts(encode({"no": "answer"})) is bool(asked)
    assert docket.asked == asked
