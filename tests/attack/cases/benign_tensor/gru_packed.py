# /// stoilo-case
# idea = "recurrent network"
# level = "tensor"
# ///
"""A GRU over sequences of different lengths: the parity of the ones."""
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence


class Parity(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(1, 12, bidirectional=True)
        self.cell = nn.GRUCell(24, 8)
        self.out = nn.Linear(8, 2)

    def forward(self, padded, lengths):
        packed = pack_padded_sequence(padded, lengths, enforce_sorted=False)
        states, last = self.gru(packed)
        states, sizes = pad_packed_sequence(states)
        h = torch.zeros(padded.size(1), 8)
        for state in states:
            h = self.cell(state, h)
        return self.out(h), last


def run(kwargs):
    torch.manual_seed(11)
    sequences = [torch.randint(0, 2, (int(n), 1)).float() for n in torch.randint(2, 7, (40,))]
    lengths = torch.tensor([len(s) for s in sequences])
    target = torch.stack([s.sum() % 2 for s in sequences]).long()
    padded = pad_sequence(sequences)
    model = Parity()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(15):
        optimizer.zero_grad()
        logits, last = model(padded, lengths)
        loss = nn.functional.cross_entropy(logits, target)
        loss.backward()
        optimizer.step()
        losses.append(round(loss.item(), 6))
    return losses, last.shape == (2, 40, 12), logits.softmax(-1)[:3]
