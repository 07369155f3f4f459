# /// stoilo-case
# idea = "graph search"
# ///
"""A* on a grid with queue.PriorityQueue, BFS with Queue, dataclass ordering."""
from dataclasses import dataclass, field
from queue import Empty, LifoQueue, PriorityQueue, Queue
from typing import Any

MAZE = """
S..#....
.#.#.##.
.#...#..
.####.#.
......#E
""".strip().splitlines()


@dataclass(order=True)
class Item:
    priority: int
    pos: Any = field(compare=False)


def neighbours(p):
    r, c = p
    for dr, dc in ((1, 0), (-1, 0), (0, 1), (0, -1)):
        if 0 <= r + dr < len(MAZE) and 0 <= c + dc < len(MAZE[0]) and MAZE[r + dr][c + dc] != "#":
            yield r + dr, c + dc


def astar(start, goal):
    frontier = PriorityQueue()
    frontier.put(Item(0, start))
    came, cost = {start: None}, {start: 0}
    while not frontier.empty():
        current = frontier.get().pos
        if current == goal:
            break
        for nxt in neighbours(current):
            new = cost[current] + 1
            if nxt not in cost or new < cost[nxt]:
                cost[nxt] = new
                frontier.put(Item(new + abs(goal[0] - nxt[0]) + abs(goal[1] - nxt[1]), nxt))
                came[nxt] = current
    path = []
    while current is not None:
        path.append(current)
        current = came[current]
    return path[::-1]


def flood(start):
    q, dist = Queue(), {start: 0}
    q.put(start)
    while True:
        try:
            p = q.get_nowait()
        except Empty:
            return dist
        for n in neighbours(p):
            if n not in dist:
                dist[n] = dist[p] + 1
                q.put(n)


def run(kwargs):
    find = lambda ch: next((r, row.index(ch)) for r, row in enumerate(MAZE) if ch in row)
    start, goal = find("S"), find("E")
    path = astar(start, goal)
    stack = LifoQueue()
    for ch in "abc":
        stack.put(ch)
    for r, row in enumerate(MAZE):
        print("".join("*" if (r, c) in path and ch == "." else ch for c, ch in enumerate(row)))
    return {"len": len(path), "same": flood(start)[goal] == len(path) - 1, "stack": [stack.get() for _ in range(stack.qsize())]}
