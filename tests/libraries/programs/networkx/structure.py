"""Centrality, components, communities, colouring, isomorphism, generators, layouts."""

import networkx as nx
import numpy as np
import sympy
from networkx.algorithms import isomorphism
from networkx.algorithms.community import greedy_modularity_communities


def centrality(args):
    g = nx.karate_club_graph()
    return nx.betweenness_centrality(g), nx.closeness_centrality(g), nx.degree_centrality(g)


def pagerank(args):
    g = nx.scale_free_graph(60, seed=4)
    return nx.pagerank(nx.DiGraph(g)), nx.google_matrix(nx.DiGraph(g))[:2]


def eigenvectors(args):
    g = nx.les_miserables_graph()
    return nx.eigenvector_centrality(g), nx.katz_centrality_numpy(nx.path_graph(6), alpha=0.1)


def components(args):
    g = nx.gnp_random_graph(60, 0.02, seed=9, directed=True)
    strong = sorted(map(sorted, nx.strongly_connected_components(g)))
    return strong, nx.number_weakly_connected_components(g), nx.condensation(g).number_of_nodes()


def communities(args):
    g = nx.karate_club_graph()
    found = greedy_modularity_communities(g)
    return [sorted(one) for one in found], nx.community.modularity(g, found)


def louvain(args):
    found = nx.community.louvain_communities(nx.ring_of_cliques(6, 5), seed=3)
    return sorted(map(sorted, found))


def label_propagation(args):
    found = nx.community.asyn_lpa_communities(nx.karate_club_graph(), seed=1)
    return sorted(map(sorted, found))


def colouring(args):
    return nx.greedy_color(nx.petersen_graph(), strategy="DSATUR"), nx.equitable_color(nx.cycle_graph(9), 3)


def cliques(args):
    g = nx.gnm_random_graph(30, 160, seed=2)
    return sorted(map(sorted, nx.find_cliques(g)))[:10], nx.core_number(g), nx.transitivity(g)


def same_shape(args):
    g = nx.petersen_graph()
    h = nx.relabel_nodes(g, {k: (k * 3) % 10 for k in range(10)})
    match = isomorphism.GraphMatcher(g, h)
    return match.is_isomorphic(), nx.vf2pp_is_isomorphic(g, h), nx.weisfeiler_lehman_graph_hash(g)


def edit_distance(args):
    return nx.graph_edit_distance(nx.cycle_graph(5), nx.wheel_graph(5))


def random_graphs(args):
    made = [
        nx.barabasi_albert_graph(40, 2, seed=1),
        nx.watts_strogatz_graph(30, 4, 0.3, seed=2),
        nx.random_regular_graph(3, 20, seed=3),
        nx.stochastic_block_model([10, 10], [[0.8, 0.1], [0.1, 0.7]], seed=4),
        nx.random_geometric_graph(25, 0.3, seed=5),
    ]
    return [sorted(one.edges) for one in made]


def seedless(args):
    return sorted(nx.gnp_random_graph(20, 0.2).edges)


def layouts(args):
    g = nx.karate_club_graph()
    return nx.spring_layout(g, seed=7), nx.kamada_kawai_layout(nx.cycle_graph(5)), nx.spectral_layout(g)


def spectra(args):
    g = nx.karate_club_graph()
    return np.round(nx.laplacian_spectrum(g), 10), nx.to_numpy_array(g), nx.algebraic_connectivity(nx.path_graph(5), seed=1)


def attributes(args):
    g = nx.Graph(name="demo")
    g.add_nodes_from([(k, {"size": k**2}) for k in range(5)])
    nx.add_cycle(g, range(5), weight=2)
    g.nodes[3]["label"] = "x"
    return dict(g.nodes(data=True)), g[0][1], nx.get_node_attributes(g, "size"), str(g), g.name


def multigraph(args):
    g = nx.MultiDiGraph([(0, 1), (0, 1), (1, 2)])
    g.add_edge(2, 0, key="k", weight=3.5)
    return list(g.edges(keys=True, data=True)), g.number_of_edges(0, 1), dict(g.degree())


def text_forms(args):
    g = nx.path_graph(4, create_using=nx.DiGraph)
    lines = list(nx.generate_edgelist(g, data=False)), list(nx.generate_adjlist(g))
    back = nx.parse_edgelist(["0 1 2.5", "1 2 0.5"], nodetype=int, data=(("weight", float),))
    return lines, sorted(back.edges(data=True)), nx.node_link_data(g), list(nx.generate_gml(g))


def packed(args):
    g = nx.from_graph6_bytes(b"DBw")
    return sorted(g.edges), nx.to_graph6_bytes(nx.cycle_graph(6)), nx.to_sparse6_bytes(g)


def small_world(args):
    g = nx.connected_watts_strogatz_graph(16, 4, 0.2, seed=6)
    return nx.average_clustering(g), nx.average_shortest_path_length(g), nx.diameter(g)


def triads(args):
    g = nx.gnp_random_graph(12, 0.3, seed=8, directed=True)
    return nx.triadic_census(g), nx.reciprocity(g), nx.degree_assortativity_coefficient(g)


class Weighted(nx.Graph):
    def edge_attr_dict_factory(self):
        return {"weight": 1}


def own_graph(args):
    g = Weighted()
    g.add_edge(1, 2)
    g.add_edge(2, 3, weight=5)
    return list(g.edges(data=True))


def lambdified_arrays(args):
    x, y = sympy.symbols("x y")
    e = sympy.Piecewise((sympy.sin(x) / y, x < 1), (sympy.sqrt(x + y), True))
    f = sympy.lambdify((x, y), e, "numpy")
    g = sympy.lambdify((x, y), sympy.Matrix([[x, y], [1, x * y]]), "numpy")
    return f(np.linspace(0, 2, 5), 3.0), g(1.0, 2.0)
