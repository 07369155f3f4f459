"""Shortest paths, flows, matchings, trees, traversal."""

import networkx as nx


def _grid():
    g = nx.grid_2d_graph(6, 6)
    for number, (u, v) in enumerate(g.edges):
        g.edges[u, v]["weight"] = 1 + number * 7 % 11
    return g


def dijkstra(args):
    g = _grid()
    return nx.dijkstra_path(g, (0, 0), (5, 5)), nx.dijkstra_path_length(g, (0, 0), (5, 5))


def bellman_ford(args):
    g = nx.DiGraph([(0, 1, {"weight": 4}), (0, 2, {"weight": 3}), (2, 1, {"weight": -2})])
    return nx.bellman_ford_path(g, 0, 1), nx.negative_edge_cycle(g)


def astar(args):
    def guess(a, b):
        return abs(a[0] - b[0]) + abs(a[1] - b[1])

    return nx.astar_path(_grid(), (0, 0), (5, 5), heuristic=guess)


def all_pairs(args):
    g = nx.krackhardt_kite_graph()
    return nx.floyd_warshall_numpy(g), dict(nx.all_pairs_shortest_path_length(g))


def maximum_flow(args):
    g = nx.DiGraph()
    g.add_edge("s", "a", capacity=3.0)
    g.add_edge("s", "b", capacity=1.0)
    g.add_edge("a", "t", capacity=2.0)
    g.add_edge("a", "b", capacity=5.0)
    g.add_edge("b", "t", capacity=4.0)
    value, parts = nx.maximum_flow(g, "s", "t")
    return value, parts, nx.minimum_cut_value(g, "s", "t")


def cheapest_flow(args):
    g = nx.DiGraph()
    g.add_node(1, demand=-4)
    g.add_node(4, demand=4)
    for u, v, weight, capacity in [(1, 2, 2, 3), (1, 3, 1, 4), (2, 4, 1, 5), (3, 4, 4, 3)]:
        g.add_edge(u, v, weight=weight, capacity=capacity)
    return nx.min_cost_flow(g), nx.network_simplex(g)[0]


def matching(args):
    g = _grid()
    found = nx.max_weight_matching(g)
    return sorted(map(sorted, found)), nx.is_maximal_matching(g, found)


def bipartite(args):
    from networkx.algorithms import bipartite

    g = nx.Graph([(k, "abcd"[j]) for k in range(4) for j in range(4) if (k * j) % 3 != 1])
    top, bottom = bipartite.sets(g)
    return sorted(top), bipartite.maximum_matching(g, top_nodes=sorted(top))


def spanning_tree(args):
    t = nx.minimum_spanning_tree(_grid())
    return sorted(t.edges(data="weight")), nx.is_tree(t)


def traversal(args):
    g = nx.balanced_tree(3, 3)
    return list(nx.bfs_edges(g, 0))[:20], list(nx.dfs_preorder_nodes(g, 0)), nx.to_prufer_sequence(g)


def topological(args):
    g = nx.DiGraph([(a, b) for a in range(12) for b in range(a + 1, 12) if b % (a + 1) == 0])
    return list(nx.topological_sort(g)), nx.dag_longest_path(g), sorted(nx.transitive_reduction(g).edges)


def travelling_salesman(args):
    g = nx.complete_graph(9)
    for u, v in g.edges:
        g.edges[u, v]["weight"] = (u * 13 + v * 7) % 17 + 1
    return nx.approximation.traveling_salesman_problem(g, cycle=True)
