# /// stoilo-case
# idea = "value learning"
# level = "tensor"
# ///
"""Deep Q-learning with a replay memory and a target network, on a cliff walk."""
import random
from collections import deque, namedtuple

import torch
import torch.nn as nn
import torch.optim as optim

Transition = namedtuple("Transition", ("state", "action", "next_state", "reward"))


class ReplayMemory(object):
    def __init__(self, capacity):
        self.memory = deque([], maxlen=capacity)

    def push(self, *args):
        self.memory.append(Transition(*args))

    def sample(self, batch_size):
        return random.sample(self.memory, batch_size)

    def __len__(self):
        return len(self.memory)


class DQN(nn.Module):
    def __init__(self, n_observations, n_actions):
        super(DQN, self).__init__()
        self.layers = nn.Sequential(nn.Linear(n_observations, 24), nn.ReLU(), nn.Linear(24, n_actions))

    def forward(self, x):
        return self.layers(x)


def step(state, action):
    state = state + (1 if action else -1)
    if state < 0:
        return None, -1.0
    if state == 4:
        return None, 1.0
    return state, -0.02


def encode(state):
    return nn.functional.one_hot(torch.tensor([state]), 4).float()


def optimize(policy, target, memory, optimizer, gamma=0.9, size=16):
    if len(memory) < size:
        return None
    batch = Transition(*zip(*memory.sample(size)))
    final = torch.tensor([s is not None for s in batch.next_state], dtype=torch.bool)
    states, actions, rewards = torch.cat(batch.state), torch.cat(batch.action), torch.cat(batch.reward)
    values = policy(states).gather(1, actions)
    following = torch.zeros(size)
    with torch.no_grad():
        if final.any():
            following[final] = target(torch.cat([s for s in batch.next_state if s is not None])).max(1).values
    loss = nn.SmoothL1Loss()(values, (following * gamma + rewards).unsqueeze(1))
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_value_(policy.parameters(), 100)
    optimizer.step()
    return loss.item()


def run(kwargs):
    random.seed(12)
    torch.manual_seed(12)
    policy, target = DQN(4, 2), DQN(4, 2)
    target.load_state_dict(policy.state_dict())
    optimizer = optim.AdamW(policy.parameters(), lr=1e-2, amsgrad=True)
    memory, losses, tau = ReplayMemory(200), [], 0.1
    for episode in range(25):
        state, steps = 1, 0
        while state is not None and steps < 12:
            steps += 1
            if random.random() < 0.3:
                action = torch.tensor([[random.randrange(2)]], dtype=torch.long)
            else:
                with torch.no_grad():
                    action = policy(encode(state)).max(1).indices.view(1, 1)
            after, reward = step(state, action.item())
            memory.push(encode(state), action, None if after is None else encode(after), torch.tensor([reward]))
            state = after
            losses.append(optimize(policy, target, memory, optimizer))
            weights, fixed = policy.state_dict(), target.state_dict()
            for key in weights:
                fixed[key] = weights[key] * tau + fixed[key] * (1 - tau)
            target.load_state_dict(fixed)
    with torch.no_grad():
        values = policy(torch.eye(4))
    return [loss for loss in losses if loss is not None][-5:], values, values.argmax(1).tolist()
