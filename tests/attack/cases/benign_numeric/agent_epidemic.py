# /// stoilo-case
# idea = "agent models"
# level = "numeric"
# ///
"""SEIR agents on a Watts-Strogatz network, with enum states and event log."""
import enum
from dataclasses import dataclass, field

import numpy as np


class State(enum.IntEnum):
    S = 0
    E = 1
    I = 2
    R = 3


@dataclass
class Params:
    n: int = 200
    k: int = 6
    rewire: float = 0.1
    beta: float = 0.15
    sigma: float = 0.3
    gamma: float = 0.1
    seed: int = 77


@dataclass
class History:
    counts: list = field(default_factory=list)

    def record(self, states):
        self.counts.append(np.bincount(states, minlength=len(State)))

    def as_array(self):
        return np.stack(self.counts)


def watts_strogatz(p, rng):
    adj = np.zeros((p.n, p.n), dtype=bool)
    for shift in range(1, p.k // 2 + 1):
        i = np.arange(p.n)
        j = (i + shift) % p.n
        rewired = rng.random(p.n) < p.rewire
        j = np.where(rewired, rng.integers(0, p.n, p.n), j)
        adj[i, j] = adj[j, i] = True
    np.fill_diagonal(adj, False)
    return adj


def run(kwargs):
    p = Params()
    rng = np.random.default_rng(p.seed)
    adj = watts_strogatz(p, rng)
    states = np.full(p.n, State.S)
    states[rng.choice(p.n, 3, replace=False)] = State.I
    log = History()
    for day in range(80):
        log.record(states)
        pressure = adj @ (states == State.I)
        u = rng.random(p.n)
        infect = (states == State.S) & (u < 1 - (1 - p.beta) ** pressure)
        onset = (states == State.E) & (u < p.sigma)
        recover = (states == State.I) & (u < p.gamma)
        states[infect], states[onset], states[recover] = State.E, State.I, State.R
        if not np.isin(states, [State.E, State.I]).any():
            break
    h = log.as_array()
    print(*(f"{s.name}={c}" for s, c in zip(State, h[-1])))
    return {"peak_day": int(h[:, State.I].argmax()), "attack": h[-1, State.R] / p.n, "days": len(h), "degree": adj.sum(0).mean()}
