# /// stoilo-case
# idea = "discrete-event simulation"
# ///
"""M/M/c queue with a heap of events, generators as processes, statistics at the end."""
import heapq
import itertools
import math
import random
from dataclasses import dataclass, field


@dataclass
class Simulator:
    now: float = 0.0
    _events: list = field(default_factory=list, repr=False)
    _ids: itertools.count = field(default_factory=itertools.count, repr=False)

    def spawn(self, process, delay=0.0):
        heapq.heappush(self._events, (self.now + delay, next(self._ids), process))

    def run(self, until):
        while self._events and self._events[0][0] <= until:
            self.now, _, process = heapq.heappop(self._events)
            try:
                delay = next(process)
            except StopIteration:
                continue
            if delay is not None:
                self.spawn(process, delay)


class Server:
    def __init__(self, sim, capacity):
        self.sim, self.free, self.waiting = sim, capacity, []

    def request(self, customer):
        if self.free:
            self.free -= 1
            return True
        self.waiting.append(customer)
        return False

    def release(self):
        if self.waiting:
            self.sim.spawn(self.waiting.pop(0))
        else:
            self.free += 1


def run(kwargs):
    rng = random.Random(99)
    sim, waits = Simulator(), []
    desk = Server(sim, 2)

    def customer():
        arrived = sim.now
        me = yield from hold(arrived)
        return me

    def hold(arrived):
        process = box.pop()
        if not desk.request(process):
            yield None
        waits.append(sim.now - arrived)
        yield rng.expovariate(1.0)
        desk.release()
        return arrived

    box = []

    def source():
        while True:
            process = customer()
            box.append(process)
            sim.spawn(process)
            yield rng.expovariate(1.6)

    sim.spawn(source())
    sim.run(until=400)
    waits.sort()
    return {"served": len(waits), "mean": math.fsum(waits) / len(waits), "p95": waits[int(0.95 * len(waits))], "sim": repr(sim)}
