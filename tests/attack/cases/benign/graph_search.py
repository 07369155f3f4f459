# /// stoilo-case
# idea = "graph search"
# run = "task"
# level = "pure"
# ///
import heapq
from collections import deque
from graphlib import TopologicalSorter


class Graph:
    def __init__(self, edges):
        self._adjacent = {}
        for a, b, w in edges:
            self._adjacent.setdefault(a, []).append((b, w))
            self._adjacent.setdefault(b, [])

    def neighbours(self, node):
        yield from self._adjacent[node]

    def dijkstra(self, source):
        distance = {source: 0}
        queue = [(0, source)]
        while queue:
            d, node = heapq.heappop(queue)
            if d > distance[node]:
                continue
            for other, weight in self.neighbours(node):
                if (new := d + weight) < distance.get(other, float("inf")):
                    distance[other] = new
                    heapq.heappush(queue, (new, other))
        return distance

    def bfs(self, source):
        seen, queue = {source}, deque([source])
        order = []
        while queue:
            node = queue.popleft()
            order.append(node)
            for other, _ in self.neighbours(node):
                if other not in seen:
                    seen.add(other)
                    queue.append(other)
        return order


def run(kwargs):
    graph = Graph([("a", "b", 4), ("a", "c", 1), ("c", "b", 2), ("b", "d", 5)])
    order = list(TopologicalSorter({"d": {"b"}, "b": {"a"}}).static_order())
    return [graph.dijkstra("a"), graph.bfs("a"), order]
