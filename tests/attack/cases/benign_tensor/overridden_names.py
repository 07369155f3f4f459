# /// stoilo-case
# idea = "names that own classes override in torch's classes"
# level = "tensor"
# ///
import torch
from torch import distributions, nn
from torch.distributions import constraints
from torch.optim.lr_scheduler import LRScheduler, StepLR
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, Sampler


class Scale(nn.Module):
    name = "scale"

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.register_buffer("seen", torch.zeros(()))
        self.frozen = False
        self.reset_parameters()

    def reset_parameters(self):
        nn.init.constant_(self.weight, 0.5)

    @property
    def device(self):
        return self.weight.device

    def size(self):
        return self.weight.numel()

    def forward(self, x):
        self.seen += 1
        return x * self.weight

    def train(self, mode=True):
        return super().train(mode and not self.frozen)

    def parameters(self, recurse=True):
        return (p for p in super().parameters(recurse) if p.requires_grad)

    def state_dict(self, *args, **kwargs):
        found = super().state_dict(*args, **kwargs)
        found["extra"] = torch.tensor(1.0)
        return found

    def load_state_dict(self, state_dict, strict=True):
        kept = {name: value for name, value in state_dict.items() if name != "extra"}
        return super().load_state_dict(kept, strict)

    def extra_repr(self):
        return f"width={self.size()}"

    def _get_name(self):
        return "Scale!"


class Positive(nn.Linear):
    def reset_parameters(self):
        nn.init.constant_(self.weight, -0.25)
        nn.init.zeros_(self.bias)

    def forward(self, x):
        return nn.functional.linear(x, self.weight.abs(), self.bias)


class Chain(nn.Sequential):
    def append(self, module):
        super().append(module)
        return super().append(nn.ReLU())

    def forward(self, x):
        return super().forward(x) + 1


class Mixin:
    def describe(self):
        return f"{type(self).__name__} of {len(list(self.parameters()))}"


class Both(Mixin, nn.ModuleList):
    pass


class Descent(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.add_(p.grad, alpha=-group["lr"])

    def zero_grad(self, set_to_none=False):
        super().zero_grad(set_to_none)


class Halving(LRScheduler):
    def get_lr(self):
        return [
            group["lr"] / (2 if self.last_epoch else 1)
            for group in self.optimizer.param_groups
        ]


class Loud(StepLR):
    def step(self, epoch=None):
        self.steps = getattr(self, "steps", 0) + 1
        super().step()


class Squares(Dataset):
    indices = (3, 1)

    def __len__(self):
        return 6

    def __getitem__(self, index):
        return torch.tensor(float(index * index))


class Stream(IterableDataset):
    def __iter__(self):
        return iter([1.0, 2.0, 3.0])


class Odd(Sampler):
    def __init__(self, count):
        self.count = count

    def __iter__(self):
        return iter(range(1, self.count, 2))

    def __len__(self):
        return self.count // 2


class Pairs(BatchSampler):
    def __iter__(self):
        yield from ([5, 0], [4, 1])


class Loader(DataLoader):
    def __iter__(self):
        return (batch * 2 for batch in super().__iter__())


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * grad


class Ramp(distributions.Distribution):
    arg_constraints = {"top": constraints.positive}
    support = constraints.positive
    has_rsample = True

    def __init__(self, top, validate_args=None):
        self.top = torch.as_tensor(top)
        super().__init__(self.top.shape, validate_args=validate_args)

    @property
    def mean(self):
        return self.top * 2 / 3

    def rsample(self, sample_shape=torch.Size()):
        return self.top * torch.rand(sample_shape + self.batch_shape).sqrt()

    def log_prob(self, value):
        return torch.log(2 * value / self.top**2)


class Doubling(distributions.Transform):
    domain = constraints.real
    codomain = constraints.real
    bijective = True
    sign = 1

    def _call(self, x):
        return 2 * x

    def _inverse(self, y):
        return y / 2

    def log_abs_det_jacobian(self, x, y):
        return torch.full_like(x, 2.0).log()


class Even(constraints.Constraint):
    is_discrete = True

    def check(self, value):
        return value % 2 == 0


def run(kwargs):
    torch.manual_seed(3)
    model = Scale(3)
    chain = Chain(Positive(3, 2))
    chain.append(nn.Dropout(0.0))
    optimizer = Descent([*model.parameters(), *chain.parameters()], lr=0.1)
    schedule = Halving(optimizer)
    for _ in range(3):
        optimizer.zero_grad()
        loss = chain(model(torch.ones(2, 3))).square().sum()
        loss.backward()
        optimizer.step()
        schedule.step()
    model.load_state_dict(model.state_dict())
    model.frozen = True
    model.train()
    x = torch.tensor([2.0], requires_grad=True)
    Cube.apply(x).backward()
    loud = Loud(torch.optim.SGD(model.parameters(), lr=1.0), 1)
    loud.step()
    normal = distributions.Normal(0.0, 1.0)
    moved = distributions.TransformedDistribution(normal, [Doubling()])
    Scale.note = "assigned later"
    return [
        *(
            loss.item(),
            model.seen.item(),
            model.training,
            repr(model),
            str(model.device),
        ),
        *(
            model.name,
            Scale.note,
            Both([model, chain]).describe(),
            schedule.get_last_lr(),
        ),
        *(x.grad.item(), loud.steps, loud.get_last_lr()),
        [
            batch.tolist()
            for batch in DataLoader(Squares(), batch_size=2, sampler=Odd(6))
        ],
        [
            b.tolist()
            for b in DataLoader(Squares(), batch_sampler=Pairs(Odd(6), 2, False))
        ],
        [batch.tolist() for batch in Loader(Stream(), batch_size=2)],
        *(Ramp(3.0).mean.item(), Ramp(3.0).sample((2,)).tolist()),
        *(
            moved.log_prob(torch.tensor(1.0)).item(),
            Even().check(torch.tensor(4)).item(),
        ),
    ]
