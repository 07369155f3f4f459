# /// stoilo-case
# idea = "containers of parameters"
# level = "tensor"
# ///
"""A siamese network of containers: ParameterList, ModuleDict, initialisers."""
import torch
from torch import nn
from torch.nn import init


class Siamese(nn.Module):
    def __init__(self, sizes=(5, 12, 3), activation="relu"):
        super().__init__()
        self.weights = nn.ParameterList(
            [nn.Parameter(torch.empty(m, n)) for n, m in zip(sizes, sizes[1:])]
        )
        self.biases = nn.ParameterDict({f"b{i}": nn.Parameter(torch.zeros(m)) for i, m in enumerate(sizes[1:])})
        self.activations = nn.ModuleDict({"relu": nn.ReLU(), "tanh": nn.Tanh()})
        self.activation = activation
        self.reset_parameters()

    def reset_parameters(self):
        for w in self.weights:
            init.orthogonal_(w)
        init.constant_(self.biases["b0"], 0.1)

    def forward(self, x):
        for i, w in enumerate(self.weights):
            x = nn.functional.linear(x, w, self.biases[f"b{i}"])
            if i < len(self.weights) - 1:
                x = self.activations[self.activation](x)
        return nn.functional.normalize(x)


def run(kwargs):
    torch.manual_seed(52)
    centres = torch.randn(3, 5) * 2
    def draw(kind):
        return centres[kind] + 0.5 * torch.randn(16, 5)

    model = Siamese()
    criterion = nn.TripletMarginLoss(margin=0.5)
    optimizer = torch.optim.Rprop(model.parameters(), lr=0.01)
    losses = []
    for step in range(20):
        kind = step % 3
        loss = criterion(model(draw(kind)), model(draw(kind)), model(draw((kind + 1) % 3)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    w = torch.empty(4, 4)
    drawn = {
        "xavier": init.xavier_normal_(w).clone(), "kaiming": init.kaiming_uniform_(w, a=0.1).clone(),
        "trunc": init.trunc_normal_(w, std=0.02).clone(), "eye": init.eye_(w).clone(),
        "sparse": init.sparse_(w, 0.5).clone(), "dirac": init.dirac_(torch.empty(2, 2, 3)),
    }
    names = [name for name, _ in model.named_parameters()]
    kinds = [type(child).__name__ for child in model.children()]
    return losses[::4], drawn, names, kinds, len(model.weights), sorted(model.biases.keys())
