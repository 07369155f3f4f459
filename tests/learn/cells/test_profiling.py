"""Modules taken apart at legal cuts, and what each layer costs."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from stoilo.core.errors import UsageError
from stoilo.learn.cells.profiling import Chain, list_layers, profile


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


class Block(nn.Module):
    def __init__(self, skip=True):
        super().__init__()
        self.skip = skip
        self.one, self.two = nn.Linear(6, 6), nn.Linear(6, 6)
        self.norm = nn.BatchNorm1d(6)

    def forward(self, x):
        y = self.two(functional.relu(self.norm(self.one(x)), inplace=True))
        return functional.relu(x + y) if self.skip else functional.relu(y)


class Residual(nn.Module):
    def __init__(self, skip=True):
        super().__init__()
        self.stem, self.head = nn.Linear(4, 6), nn.Linear(6, 3)
        self.blocks = nn.Sequential(Block(skip), Block(skip))

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)))


def weights_of(whole, layers):
    """Return the names of each layer's parameters, as the whole module has them."""
    names = {id(p): name for name, p in whole.named_parameters()}
    return [[names[id(p)] for p in one.parameters()] for one in layers.values()]


X = torch.randn(5, 4, generator=torch.Generator().manual_seed(1))


def test_no_cut_lies_inside_a_block_that_is_skipped_over():
    whole = Residual()
    block = [f"blocks.{{}}.{part}.{kind}" for part in ("one", "norm", "two")
             for kind in ("weight", "bias")]  # fmt: skip
    found = [names for names in weights_of(whole, list_layers(whole, X)) if names]
    assert found == [
        ["stem.weight", "stem.bias"],
        [name.format(0) for name in block],
        [name.format(1) for name in block],
        ["head.weight", "head.bias"],
    ]


def test_without_the_skip_the_block_is_cut():
    whole = Residual(skip=False)
    found = weights_of(whole, list_layers(whole, X))
    assert ["blocks.0.one.weight", "blocks.0.one.bias"] in found


def gradients(module, layers, x):
    module.zero_grad()
    torch.manual_seed(3)
    Chain(*layers)(x).square().sum().backward()
    return {name: p.grad.clone() for name, p in module.named_parameters()}


def test_layers_in_a_row_give_the_modules_gradients_bit_for_bit():
    whole = Residual()
    layers = list_layers(whole, X).values()
    mine, theirs = gradients(whole, layers, X), gradients(whole, [whole], X)
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)


class Tied(nn.Module):
    def __init__(self, tied=True):
        super().__init__()
        self.first, self.middle, self.last = (
            nn.Linear(4, 4, bias=False) for _ in "abc"
        )
        if tied:
            self.last.weight = self.first.weight

    def forward(self, x):
        return torch.tanh(self.last(torch.tanh(self.middle(self.first(x)))))


def test_both_uses_of_a_shared_parameter_are_in_one_layer():
    whole = Tied()
    found = list_layers(whole, X)
    assert weights_of(whole, found) == [["first.weight", "middle.weight"], []]
    assert next(iter(found)) == "first..last"
    assert len(list_layers(Tied(tied=False), X)) == 5


def test_a_part_that_is_called_twice_is_in_one_layer():
    part = nn.BatchNorm1d(4)
    assert len(list_layers(nn.Sequential(part, nn.Tanh(), part), X)) == 1


class Odd(nn.Module):
    """What torch.fx cannot trace: it looks at numbers."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x) if x.sum() > 0 else -self.linear(x)


class InARow(nn.Module):
    """What torch.fx cannot trace either; all that it computes it leaves to its parts."""

    def __init__(self, *parts, then=lambda x: x):
        super().__init__()
        self.parts, self.then = nn.ModuleList(parts), then

    def forward(self, x):
        for part in self.parts:
            x = self.then(part(x)) if x.isfinite().all() else x
        return x


class Around(nn.Module):
    def __init__(self):
        super().__init__()
        self.odd, self.end = Odd(), nn.Linear(4, 2)

    def forward(self, x):
        return self.end(x + torch.tanh(self.odd(x)))


def test_an_untraceable_part_is_one_layer():
    assert list(list_layers(nn.Sequential(Odd(), nn.Tanh()), X)) == ["0", "1"]
    assert list(list_layers(Around(), X)) == ["add", "end"]


def test_an_untraceable_module_is_cut_between_parts_called_in_a_row():
    whole = InARow(Odd(), nn.Sequential(Odd(), nn.Tanh()), nn.Linear(4, 2))
    found = list_layers(whole, X)
    assert list(found) == ["parts.0", "parts.1.0", "parts.1.1", "parts.2"]
    assert torch.equal(Chain(*found.values())(-X), whole(-X))


class Squared(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.both = nn.Linear(4, 4), nn.Bilinear(4, 4, 1)

    def forward(self, x):
        x = self.first(x)
        return self.both(x, x)


def test_a_part_that_takes_one_value_twice_gets_it_from_one_neighbour():
    whole = Squared()
    found = list_layers(whole, X)
    assert len(found) == 2
    assert torch.equal(Chain(*found.values())(-X), whole(-X))


class Scaled(nn.Module):
    def forward(self, x, by=1.0):
        return x * by


class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.scaled, self.end = nn.Linear(4, 4), Scaled(), nn.Linear(4, 4)

    def forward(self, x):
        return self.end(self.scaled(self.first(x), by=3.0))


class Looking(Scaled):
    """One operation for torch.fx, with its argument by name."""

    def forward(self, x, by=1.0):
        return x * by if x.isfinite().all() else x


def test_arguments_by_name_go_along():
    for kind in (Scaled, Looking):
        whole = Named()
        whole.scaled = kind()
        found = list_layers(whole, X)
        assert len(found) == 3
        assert torch.equal(Chain(*found.values())(-X), whole(-X))


class Text(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.words, self.out = nn.Embedding(9, 8), nn.Linear(8, 9)
        self.place = nn.Parameter(torch.zeros(3, 8))
        self.inner = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)

    def forward(self, x):
        return self.out(self.inner(self.words(x) + self.place))


def test_layers_of_torch_with_layers_inside_are_taken_apart():
    whole, words = Text(), torch.tensor([[1, 2, 3]])
    found = list_layers(whole, words)
    inner = [f"inner.layers.{number}" for number in range(3)]
    assert list(found) == ["words", "add", *inner, "out"]
    assert weights_of(whole, found)[:2] == [["words.weight"], ["place"]]
    mine, theirs = (gradients(whole, one, words) for one in (found.values(), [whole]))
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)


REFUSED = [
    (InARow(Odd(), Odd(), then=torch.tanh), "cannot be cut"),
    (InARow(Odd(), nn.Linear(4, 4), then=lambda x: x.mul_(2)), "something else"),
    (Odd(), "cannot be cut"),
    (nn.Linear(5, 5), "does not run on this batch"),
]


@pytest.mark.parametrize(("module", "why"), REFUSED)
def test_what_cannot_be_cut_is_refused_with_the_reason(module, why):
    with pytest.raises(UsageError, match=why) as caught:
        list_layers(module, X)
    assert caught.value.code == "STO-T001"


class Noisy(nn.Module):
    """Numbers that are drawn without looking at the input become constants of a trace."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x + torch.randn(4))


def test_numbers_drawn_while_tracing_are_noticed_and_leave_nothing_behind():
    module = Noisy()
    before = {*vars(module)}
    with pytest.raises(UsageError, match="something else"):
        list_layers(module, X)
    assert {*vars(module)} == before


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.end = nn.Embedding(9, 4), nn.Linear(4, 9)

    def forward(self, words, scale, mask=None):
        found = self.words(words.clamp(max=8)) * scale
        return self.end(found if mask is None else found * mask)


def test_of_several_inputs_none_goes_past_the_first_cut():
    whole, words = Words(), torch.tensor([[1, 2, 80]])
    found = list_layers(whole, words, torch.ones(1))
    assert weights_of(whole, found) == [["words.weight"], ["end.weight", "end.bias"]]


class Numbers(Words):
    def forward(self, words):
        return self.end(self.words(words.clamp(max=8)))


def test_whole_numbers_are_never_cut_off_from_their_use():
    whole = Numbers()
    found = list_layers(whole, torch.tensor([[1, 80]]))
    assert weights_of(whole, found) == [["words.weight"], ["end.weight", "end.bias"]]


def test_the_module_and_the_draws_of_its_owner_stay_as_they_were():
    module = Residual()
    before = {name: t.clone() for name, t in module.state_dict().items()}
    torch.manual_seed(5)
    wanted = torch.rand(1)
    torch.manual_seed(5)
    profile(list_layers(module, X), X, rounds=1, warm_up=0)
    assert torch.equal(torch.rand(1), wanted)
    assert all(torch.equal(t, before[name]) for name, t in module.state_dict().items())
    assert all(p.grad is None for p in module.parameters())


class Doubled(nn.Module):
    def forward(self, x):
        return x.mul_(2)


def test_a_batch_that_is_written_to_stays_the_callers():
    x = X.clone()
    profile(list_layers(nn.Sequential(Doubled(), nn.Linear(4, 1)), x), x, rounds=1)
    assert torch.equal(x, X)


NOW = [0.0]


class Slow(torch.autograd.Function):
    """Its forward takes 1 s of a clock of its own, its backward 2 s; the fifth, a minute."""

    calls = 0

    @staticmethod
    def forward(_, x):
        Slow.calls += 1
        NOW[0] += 60 if Slow.calls == 5 else 1
        return x.clone()

    @staticmethod
    def backward(_, gradient):
        NOW[0] += 2
        return gradient


class Slowly(nn.Module):
    def forward(self, x):
        return Slow.apply(x)


def test_time_is_the_median_of_forward_and_backward():
    layers = {"linear": nn.Linear(4, 4), "slow": Slowly(), "more": nn.Tanh()}
    found = profile(layers, X, rounds=7, warm_up=2, clock=lambda: NOW[0])
    assert [one.time_s for one in found] == [0, 3, 0]


def test_what_trains_nothing_has_no_backward():
    layers = {"slow": Slowly(), "linear": nn.Linear(4, 4)}
    found = profile(layers, X, rounds=3, warm_up=5, clock=lambda: NOW[0])
    assert [one.time_s for one in found] == [1, 0]


def test_bytes_are_those_of_output_weights_and_what_backward_keeps():
    module = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(), nn.Linear(8, 2))
    module[3].bias.requires_grad = False
    found = profile(list_layers(module, X), X, rounds=1, warm_up=0)
    assert [one.output_bytes for one in found] == [160, 160, 160, 40]
    assert [one.weight_bytes for one in found] == [160, 0, 0, 64]
    # Linear keeps its input, which counts with the layer before; dropout its mask as well.
    assert [one.kept_bytes for one in found] == [160, 160, 320, 40]


def test_larger_layers_take_longer():
    layers = {"small": nn.Linear(4, 4), "large": nn.Sequential(nn.Linear(4, 2000),
              nn.Linear(2000, 4))}  # fmt: skip
    small, large = profile(layers, X.repeat(100, 1), rounds=9)
    assert large.time_s > 3 * small.time_s > 0
