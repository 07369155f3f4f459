# /// stoilo-case
# idea = "shared weights"
# level = "tensor"
# ///
"""A character model whose output layer is its embedding."""
import torch
from torch import nn
from torch.nn import functional as F

TEXT = "the quick brown fox jumps over the lazy dog and the dog sleeps over the fox. " * 3


class CharModel(nn.Module):
    def __init__(self, size, width=16):
        super().__init__()
        self.encoder = nn.Embedding(size, width)
        self.mixer = nn.Linear(4 * width, width)
        self.decoder = nn.Linear(width, size, bias=False)
        self.decoder.weight = self.encoder.weight

    def forward(self, window):
        hidden = torch.tanh(self.mixer(self.encoder(window).flatten(1)))
        return self.decoder(hidden)


def run(kwargs):
    torch.manual_seed(100)
    letters = sorted(set(TEXT))
    index = {letter: i for i, letter in enumerate(letters)}
    codes = torch.tensor([index[letter] for letter in TEXT])
    windows = codes.unfold(0, 5, 1)
    model = CharModel(len(letters))
    count = len(list(model.parameters()))
    optimizer = torch.optim.Adamax(model.parameters(), lr=0.05)
    for epoch in range(20):
        logits = model(windows[:, :4])
        loss = F.cross_entropy(logits, windows[:, 4])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    tied = model.decoder.weight is model.encoder.weight
    text = TEXT[:4]
    with torch.no_grad():
        for _ in range(30):
            window = torch.tensor([[index[letter] for letter in text[-4:]]])
            text += letters[model(window).argmax().item()]
    print(text)
    return {"loss": loss.item(), "tied": tied, "count": count, "text": text}
