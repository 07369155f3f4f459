# /// stoilo-case
# idea = "nbody class"
# run = "task"
# level = "pure"
# ///
import math


class Body:
    """A point mass."""

    def __init__(self, position, velocity, mass):
        self.position = list(position)
        self.velocity = list(velocity)
        self._mass = mass

    @property
    def mass(self):
        return self._mass

    def advance(self, dt):
        for axis in range(3):
            self.position[axis] += dt * self.velocity[axis]

    def pull(self, other, dt):
        delta = [a - b for a, b in zip(self.position, other.position)]
        distance = math.sqrt(sum(x * x for x in delta)) + 1e-9
        force = dt / distance**3
        for axis, x in enumerate(delta):
            self.velocity[axis] -= x * other._mass * force
            other.velocity[axis] += x * self._mass * force


def run(kwargs):
    bodies = [
        Body((0, 0, 0), (0, 0, 0), 39.4),
        Body((4.8, -1.1, -0.1), (0.6, 2.8, -0.02), 0.037),
        Body((8.3, 4.1, -0.4), (-1.0, 1.8, 0.008), 0.011),
    ]
    for _ in range(50):
        for i, a in enumerate(bodies):
            for b in bodies[i + 1 :]:
                a.pull(b, 0.01)
        for body in bodies:
            body.advance(0.01)
    return [body.position for body in bodies] + [bodies[1].mass]
