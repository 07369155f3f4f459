# /// stoilo-case
# idea = "message passing"
# level = "tensor"
# ///
"""Message passing on a ring of communities: who belongs where."""
import torch
from torch import nn
import torch.nn.functional as F


class GraphConv(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.lin = nn.Linear(n, m, bias=False)
        self.bias = nn.Parameter(torch.Tensor(m).zero_())

    def forward(self, x, edges):
        source, target = edges
        degree = torch.zeros(x.size(0)).scatter_add_(0, target, torch.ones(target.numel()))
        norm = degree.pow(-0.5)
        norm[torch.isinf(norm)] = 0
        messages = self.lin(x)[source] * (norm[source] * norm[target]).unsqueeze(-1)
        return torch.zeros(x.size(0), messages.size(1)).index_add_(0, target, messages) + self.bias


class GCN(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.conv1, self.conv2 = GraphConv(n, 8), GraphConv(8, 3)

    def forward(self, x, edges):
        x = F.dropout(F.relu(self.conv1(x, edges)), p=0.2, training=self.training)
        return self.conv2(x, edges)


def graph(generator):
    labels = torch.arange(30) // 10
    same = labels[:, None] == labels[None, :]
    chance = torch.where(same, 0.4, 0.03)
    links = torch.bernoulli(chance, generator=generator).bool()
    links = (links | links.T) & ~torch.eye(30, dtype=torch.bool)
    links = links | torch.eye(30).bool()
    return labels, links.nonzero(as_tuple=True)


def run(kwargs):
    torch.manual_seed(44)
    labels, edges = graph(torch.Generator().manual_seed(6))
    model = GCN(30)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03, weight_decay=5e-4)
    known = torch.zeros(30, dtype=torch.bool)
    known[::5] = True
    for epoch in range(40):
        model.train()
        optimizer.zero_grad()
        out = model(torch.eye(30), edges)
        loss = F.cross_entropy(out[known], labels[known])
        loss.backward()
        optimizer.step()
    model.eval()
    out = model(torch.eye(30), edges).argmax(-1)
    adjacency = torch.zeros(30, 30).index_put_(edges, torch.ones(len(edges[0])), accumulate=True)
    degrees = (adjacency @ torch.ones(30, 1)).squeeze()
    return loss.item(), (out == labels)[~known].sum().item(), degrees
