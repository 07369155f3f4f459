# /// stoilo-case
# idea = "machine learning by hand"
# level = "numeric"
# ///
"""A small autograd engine over arrays and an MLP trained with it."""
import numpy as np


class Tensor:
    def __init__(self, data, parents=(), backward=None):
        self.data = np.asarray(data, dtype=np.float64)
        self.grad = np.zeros_like(self.data)
        self._parents = parents
        self._backward = backward or (lambda: None)

    @staticmethod
    def _unbroadcast(g, shape):
        while g.ndim > len(shape):
            g = g.sum(axis=0)
        for ax, size in enumerate(shape):
            if size == 1:
                g = g.sum(axis=ax, keepdims=True)
        return g

    def __add__(self, other):
        other = other if isinstance(other, Tensor) else Tensor(other)
        out = Tensor(self.data + other.data, (self, other))

        def backward():
            self.grad += self._unbroadcast(out.grad, self.data.shape)
            other.grad += self._unbroadcast(out.grad, other.data.shape)

        out._backward = backward
        return out

    def __mul__(self, other):
        other = other if isinstance(other, Tensor) else Tensor(other)
        out = Tensor(self.data * other.data, (self, other))

        def backward():
            self.grad += self._unbroadcast(out.grad * other.data, self.data.shape)
            other.grad += self._unbroadcast(out.grad * self.data, other.data.shape)

        out._backward = backward
        return out

    __rmul__ = __mul__
    __radd__ = __add__

    def __neg__(self):
        return self * -1

    def __sub__(self, other):
        return self + (-other)

    def __matmul__(self, other):
        out = Tensor(self.data @ other.data, (self, other))

        def backward():
            self.grad += out.grad @ other.data.T
            other.grad += self.data.T @ out.grad

        out._backward = backward
        return out

    def tanh(self):
        t = np.tanh(self.data)
        out = Tensor(t, (self,))

        def backward():
            self.grad += (1 - t**2) * out.grad

        out._backward = backward
        return out

    def mean(self):
        out = Tensor(self.data.mean(), (self,))

        def backward():
            self.grad += out.grad / self.data.size

        out._backward = backward
        return out

    def backward(self):
        order, seen = [], set()

        def visit(node):
            if node not in seen:
                seen.add(node)
                for parent in node._parents:
                    visit(parent)
                order.append(node)

        visit(self)
        self.grad = np.ones_like(self.data)
        for node in reversed(order):
            node._backward()


class MLP:
    def __init__(self, sizes, rng):
        self.params = []
        for a, b in zip(sizes, sizes[1:]):
            self.params += [Tensor(rng.normal(size=(a, b)) / np.sqrt(a)), Tensor(np.zeros(b))]

    def __call__(self, x):
        *hidden, w, b = self.params
        for wi, bi in zip(hidden[::2], hidden[1::2]):
            x = (x @ wi + bi).tanh()
        return x @ w + b


def run(kwargs):
    rng = np.random.default_rng(4)
    X = rng.uniform(-2, 2, (64, 2))
    y = (X[:, :1] * X[:, 1:]) + 0.1
    net = MLP([2, 16, 1], rng)
    losses = []
    for epoch in range(80):
        err = net(Tensor(X)) - Tensor(y)
        loss = (err * err).mean()
        for p in net.params:
            p.grad = np.zeros_like(p.data)
        loss.backward()
        for p in net.params:
            p.data -= 0.1 * p.grad
        losses.append(loss.data.item())
        if epoch % 20 == 0:
            print(f"{epoch:3d} {losses[-1]:.4f}")
    return losses[::10] + [net.params[0].data]
