from __future__ import annotations

import json

from stoilo.core.frozen_tree import Tree, TreeFile
from stoilo.flavors.lock import Lock, LockedWheel
from stoilo.flavors.sbom import (
    HostLibrary,
    describe_host_libraries,
    find_package,
    read_licences,
    render_sbom,
)

WHEELS = (
    LockedWheel("jinja2", "3.0", "2" * 64, "jinja2-3.0-py3-none-any.whl"),
    LockedWheel("torch", "2.0+cpu", "1" * 64, "torch-2.0+cpu-cp311-linux.whl"),
)
LOCK = Lock("tensor", "x86_64-linux", "3.11", WHEELS)
TOOLS = Lock("tools", "x86_64-linux", "3.11", (WHEELS[0],))
LIBRARY = HostLibrary("libz.so.1", "3" * 64, "zlib1g=1:1.2.13")


def bill():
    data = render_sbom(
        "tensor", "0" * 64, LOCK, TOOLS, "3.11.2", (LIBRARY,), {"torch": "BSD"}
    )
    return json.loads(data)


def test_bill_lists_what_is_in_the_tree_only():
    document = bill()
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    assert [one["name"] for one in document["components"]] == [
        *("torch", "python", "libz.so.1"),
    ]
    assert document["components"][0]["purl"].startswith("pkg:pypi/torch@2.0%2Bcpu?")
    assert document["components"][0]["hashes"][0]["content"] == "1" * 64
    assert document["components"][2]["version"] == "1:1.2.13"


def test_bill_names_the_tools_apart_and_no_time():
    document = bill()
    tools = document["metadata"]["tools"]["components"]
    assert [tool["name"] for tool in tools] == ["jinja2"]
    assert {"timestamp", "serialNumber"} & {*document, *document["metadata"]} == set()


def test_references_are_unique_and_all_named():
    document = bill()
    references = [one["bom-ref"] for one in document["components"]]
    assert len(set(references)) == len(references)
    assert document["dependencies"][0]["dependsOn"] == sorted(references)


def test_host_libraries_are_described_by_their_bytes_in_the_tree(tmp_path):
    file = TreeFile("4" * 64, 1, executable=False, path="_internal/libown.so.1")
    tree = Tree("pure", "x86_64-linux", (file,))
    source = tmp_path / "libown.so.1"
    source.write_bytes(b"x")
    found = describe_host_libraries(tree, {"libown.so.1": str(source), "gone": "/x"})
    assert found == (HostLibrary("libown.so.1", "4" * 64, ""),)
    assert find_package(str(source)) == ""


def test_licences_are_read_from_the_wheels_metadata(tmp_path):
    for name, field in (
        ("A_b", "License-Expression: MIT"),
        ("c", "License: X\n  more"),
    ):
        folder = tmp_path / f"{name}-1.dist-info"
        folder.mkdir()
        text = f"Metadata-Version: 2.4\nName: {name}\n{field}\n\nLicense: no\n"
        (folder / "METADATA").write_text(text)
    found = read_licences(tmp_path, ["A_b-1.dist-info", "c-1.dist-info"])
    assert found == {"a-b": "MIT", "c": "X"}
