class Particle:
    def __init__(self, x, v):
        self.x = x
        self.v = v
        self.steps = 0

    def push(self, force, dt):
        self.v = self.v + force * dt
        self.x = self.x + self.v * dt
        self.steps = self.steps + 1
        return self.x

    def energy(self):
        return 0.5 * self.v * self.v + 0.5 * self.x * self.x


class Spring:
    def __init__(self, k):
        self.k = k

    def force(self, particle):
        return -self.k * particle.x


def run(n):
    spring = Spring(1.5)
    particles = [Particle(0.1 * i, 0.0) for i in range(20)]
    for _ in range(n):
        for particle in particles:
            particle.push(spring.force(particle), 0.01)
    return sum([particle.energy() for particle in particles])
