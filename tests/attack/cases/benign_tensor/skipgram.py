# /// stoilo-case
# idea = "embeddings"
# level = "tensor"
# ///
"""Skip-gram with negative sampling; a bag of embeddings that votes."""
from collections import Counter

import torch
import torch.nn as nn
import torch.nn.functional as F

CORPUS = """king and queen rule the land . the king is a man and the queen is a woman .
the man walks and the woman walks . a dog and a cat play in the land . the dog runs
and the cat sleeps . the king has a dog and the queen has a cat .""".split()


class SkipGram(nn.Module):
    def __init__(self, size, width=8):
        super().__init__()
        self.inside = nn.Embedding(size, width)
        self.outside = nn.Embedding(size, width)
        nn.init.uniform_(self.inside.weight, -0.5 / width, 0.5 / width)
        self.outside.weight.data.zero_()

    def forward(self, centre, context, negatives):
        v = self.inside(centre)
        positive = F.logsigmoid((v * self.outside(context)).sum(-1))
        negative = F.logsigmoid(-torch.bmm(self.outside(negatives), v.unsqueeze(2)).squeeze(2))
        return -(positive + negative.sum(1)).mean()


def run(kwargs):
    torch.manual_seed(77)
    counts = Counter(CORPUS)
    words = [word for word, _ in counts.most_common()]
    index = {word: i for i, word in enumerate(words)}
    frequencies = torch.tensor([float(counts[word]) for word in words]) ** 0.75
    pairs = [
        (index[CORPUS[i]], index[CORPUS[j]])
        for i in range(len(CORPUS))
        for j in range(max(0, i - 2), min(len(CORPUS), i + 3))
        if i != j
    ]
    centre, context = torch.tensor(pairs).unbind(1)
    model = SkipGram(len(words))
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.3)
    losses = []
    for _ in range(25):
        negatives = torch.multinomial(frequencies, 3 * len(pairs), replacement=True).view(-1, 3)
        optimizer.zero_grad()
        loss = model(centre, context, negatives)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    vectors = F.normalize(model.inside.weight.detach(), dim=1)
    similarity, nearest = (vectors @ vectors[index["king"]]).topk(4)
    bag = nn.EmbeddingBag(len(words), 2, mode="mean", sparse=False)
    votes = bag(torch.tensor([0, 1, 2, 3, 4]), torch.tensor([0, 2]))
    frozen = nn.Embedding.from_pretrained(vectors, freeze=True)
    return losses[::5], [words[i] for i in nearest], similarity, votes.detach(), frozen.weight.requires_grad
