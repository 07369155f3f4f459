# /// stoilo-case
# idea = "policy gradient"
# level = "tensor"
# ///
"""REINFORCE with a baseline: an agent learns to walk down a corridor."""
from collections import deque

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.distributions import Categorical


class Corridor:
    def __init__(self, length=6):
        self.length = length
        self.state = 0

    def reset(self):
        self.state = 0
        return self._observe()

    def _observe(self):
        return F.one_hot(torch.tensor(self.state), self.length).float()

    def step(self, action):
        self.state = max(0, self.state + (1 if action == 1 else -1))
        done = self.state == self.length - 1
        return self._observe(), 1.0 if done else -0.05, done


class Policy(nn.Module):
    def __init__(self, length):
        super().__init__()
        self.affine1 = nn.Linear(length, 16)
        self.dropout = nn.Dropout(p=0.1)
        self.affine2 = nn.Linear(16, 2)
        self.saved_log_probs = []
        self.rewards = []

    def forward(self, x):
        x = F.relu(self.dropout(self.affine1(x)))
        return F.softmax(self.affine2(x), dim=1)


def select_action(policy, state):
    probs = policy(state.unsqueeze(0))
    m = Categorical(probs)
    action = m.sample()
    policy.saved_log_probs.append(m.log_prob(action))
    return action.item(), m.entropy().item()


def finish_episode(policy, optimizer, eps=1e-6):
    R = 0
    policy_loss = []
    returns = deque()
    for r in policy.rewards[::-1]:
        R = r + 0.95 * R
        returns.appendleft(R)
    returns = torch.tensor(returns)
    returns = (returns - returns.mean()) / (returns.std() + eps)
    for log_prob, R in zip(policy.saved_log_probs, returns):
        policy_loss.append(-log_prob * R)
    optimizer.zero_grad()
    loss = torch.cat(policy_loss).sum()
    loss.backward()
    optimizer.step()
    del policy.rewards[:]
    del policy.saved_log_probs[:]


def run(kwargs):
    torch.manual_seed(543)
    env = Corridor()
    policy = Policy(env.length)
    optimizer = optim.Adam(policy.parameters(), lr=2e-2)
    lengths, entropies = [], []
    for episode in range(30):
        state = env.reset()
        for t in range(1, 40):
            action, entropy = select_action(policy, state)
            state, reward, done = env.step(action)
            policy.rewards.append(reward)
            entropies.append(entropy)
            if done:
                break
        lengths.append(t)
        finish_episode(policy, optimizer)
    return lengths, sum(entropies[-10:])
