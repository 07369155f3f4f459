import heapq


def make_graph(n):
    graph = {}
    state = 42
    for node in range(n):
        edges = []
        for _ in range(4):
            state = (state * 1103515245 + 12345) % 2147483648
            edges.append((state % n, 1 + state % 17))
        graph[node] = edges
    return graph


def distances(graph, start):
    best = {start: 0}
    queue = [(0, start)]
    while queue:
        cost, node = heapq.heappop(queue)
        if cost > best[node]:
            continue
        for other, length in graph[node]:
            through = cost + length
            if through < best.get(other, 1 << 30):
                best[other] = through
                heapq.heappush(queue, (through, other))
    return best


def run(n):
    graph = make_graph(n)
    return sum([sum(distances(graph, start).values()) for start in range(5)])
