from collections import deque
from dataclasses import dataclass


@dataclass
class Job:
    arrival: int
    length: int
    waited: int = 0


class Queue:
    def __init__(self):
        self.jobs = deque()
        self.done = []
        self.clock = 0

    def add(self, job):
        self.jobs.append(job)

    def tick(self):
        self.clock += 1
        if not self.jobs:
            return
        job = self.jobs[0]
        job.length -= 1
        if job.length <= 0:
            self.jobs.popleft()
            job.waited = self.clock - job.arrival
            self.done.append(job)


def run(n):
    queue, state = Queue(), 99
    for now in range(n):
        state = (state * 1103515245 + 12345) % 2147483648
        if state % 3 == 0:
            queue.add(Job(now, 1 + state % 4))
        queue.tick()
    return len(queue.done), sum([job.waited for job in queue.done])
