"""networkx: research programs give plain CPython's very answer, attacks are stopped."""

import pytest

from tests.support.libraries import (
    assert_stopped,
    check_program,
    programs_of,
    run_jailed,
)

ATTACKS = {
    "reads a file": "return callable(nx.read_edgelist)",
    "writes a file": "return callable(nx.write_gml)",
    "writes a file by a function's default": "return callable(nx.write_network_text)",
    "draws": "return callable(nx.draw)",
    "runs graphviz": "return callable(nx.nx_agraph.graphviz_layout)",
    "changes the configuration": "nx.config.fallback_to_nx = True; return True",
    "reads the backends": "return nx.utils.backends.backends is not None",
    "opens a file by a decorator": "return callable(nx.utils.open_file)",
    "compiles a decorator": "return callable(nx.utils.argmap)",
    "reads a file of the package": "return nx.graph_atlas(6).number_of_nodes()",
    "parses XML": "return callable(nx.parse_graphml)",
    "writes the date": "return len(list(nx.generate_gexf(nx.path_graph(2))))",
    "stops by a clock": (
        "g = nx.path_graph(2); return nx.graph_edit_distance(g, g, timeout=9) == 0"
    ),
    "stops by a clock, by place": (
        "g = nx.path_graph(2); more = [None] * 10\n"
        "    return nx.graph_edit_distance(g, g, *more, 9) == 0"
    ),
    "makes an array that native code believes": (
        "return nx.adjacency_matrix(nx.path_graph(3)).nnz"
    ),
    "takes a method for another object": (
        "return nx.Graph.order(Fake()) == 1 and nx.Graph.is_directed(5) is False"
    ),
    "replaces a method of a class": "nx.Graph.order = len; return True",
    "replaces what a graph is kept in": (
        "g = nx.Graph(); g.adj = {}; g.node_dict_factory = Fake; return True"
    ),
    "reads a private attribute": "return isinstance(getattr(nx.Graph(), '_adj'), dict)",
    "reaches the function's globals": (
        "return len(getattr(nx.pagerank.orig_func, '__globals__'))"
    ),
}
FAKE = """
import networkx as nx

class Fake:
    _node = (1,)
"""


@pytest.mark.parametrize(("path", "name"), programs_of("networkx"))
def test_program_gives_the_plain_answer(path, name):
    check_program(path, name)


@pytest.mark.parametrize("body", ATTACKS.values(), ids=list(ATTACKS))
def test_attack_is_stopped(body):
    assert_stopped(f"{FAKE}\ndef run(args):\n    {body}", "networkx")


def test_a_backend_is_not_looked_for():
    source = "return nx.pagerank(nx.path_graph(3), backend='networkx')[1] > 0"
    with pytest.raises(AssertionError, match="not installed"):
        assert_stopped(
            f"{FAKE}\ndef run(args):\n    {source.replace('networkx', 'cugraph')}",
            "networkx",
        )


def test_chance_without_a_seed_is_the_same_on_every_copy():
    source = (
        "import networkx as nx\ndef run(args):\n    g = nx.path_graph(9)\n"
        "    return nx.spring_layout(g), nx.fiedler_vector(g), nx.hits(g)\n"
    )
    copies = [run_jailed(source, "run", {}, ("networkx",)) for _ in range(2)]
    assert copies[0].value == copies[1].value is not None
