from importlib import resources
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import InternalError, UsageError
from stoilo.flavors.manifest import (
    find_flavor,
    flavor_alias,
    foreign_ids,
    parse_manifest,
    read_aliases,
    shipped_flavors,
)

# The thesis's example (listing 4), whose identifier the thesis prints.
LISTING = b"""\
requirements:
  - cloudpickle==3.1.1
  - numpy==2.2.5
  - torch==2.7.0
  - torchvision==0.22.0
modules:
  - cloudpickle
  - numpy
  - torch
  - torchvision
"""
LISTING_MD5 = "44814764c91bf9ef426c4aa899df974f"


def test_listing_of_the_thesis_has_its_printed_identifier() -> None:
    manifest = parse_manifest(LISTING)
    assert manifest.alias == flavor_alias(LISTING) == LISTING_MD5
    assert manifest.requirements[1] == "numpy==2.2.5"
    assert manifest.modules == ("cloudpickle", "numpy", "torch", "torchvision")
    assert manifest.python == "3.11"


@pytest.mark.parametrize(
    "text",
    [
        "requirements: []\nmodules: []\n",
        "# note\nrequirements:\n- a==1\n\nmodules:\n- a  # same\npython: 3.12\n",
        "modules:\n      - a.b\nrequirements:\n      - A-b.c==1.0rc1+cpu\n",
        'python: "3.11"\nrequirements: []\nmodules: []',
    ],
)
def test_forms_of_the_subset_are_read(text: str) -> None:
    assert parse_manifest(text.encode()).python.startswith("3.")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "requirements: []\n",
        "requirements: [a==1]\nmodules: []\n",
        "requirements:\nmodules: []\n",
        "requirements:\n  - a>=1\nmodules: []\n",
        "requirements:\n  - a==1 ; import os\nmodules: []\n",
        "requirements:\n  - https://example.org/a\nmodules: []\n",
        "requirements:\n  - a==1\n  - a==1\nmodules: []\n",
        "requirements:\n  - a==1\n    - b==1\nmodules: []\n",
        "requirements: []\n  - a==1\nmodules: []\n",
        "requirements: []\nmodules:\n  - ../a\n",
        "requirements: []\nmodules: []\nextra: []\n",
        "requirements: []\nmodules: []\nmodules: []\n",
        "requirements: &x []\nmodules: *x\n",
        "requirements: !!python/object:os.system []\nmodules: []\n",
        "requirements:\n\t- a==1\nmodules: []\n",
        "requirements: []\r\nmodules: []\r\n",
        "requirements: []\nmodules: []\npython: 2.7\n",
        "requirements: []\nmodules: []\npython:\n  - 3.11\n",
        "- a\n",
        "requirements: []\nmodules: []\n---\n",
        "requirements:\n" + "  - a==1\n" * 500 + "modules: []\n",
        "requirements: []\nmodules:\n  - é\n",
        "#" * 99_999,
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="STO-P003"):
        parse_manifest(text.encode())


@given(st.binary(max_size=80) | st.text("requimntsodl:-= \n#[]0123.").map(str.encode))
def test_any_bytes_end_in_a_manifest_or_our_error(data: bytes) -> None:
    try:
        parse_manifest(data)
    except UsageError as error:
        assert error.code == "STO-P003"


def test_message_names_the_line() -> None:
    with pytest.raises(UsageError, match="line 3"):
        parse_manifest(b"requirements:\n  - a==1\n  - b\nmodules: []\n")


def test_shipped_flavors_come_smallest_first() -> None:
    found = shipped_flavors()
    counts = [len(one.requirements) for one in found]
    assert counts == sorted(counts)
    assert [one.name for one in found[:2]] == ["pure", "numeric"]


def test_flavor_is_found_by_name_and_either_digest() -> None:
    numeric = next(one for one in shipped_flavors() if one.name == "numeric")
    for wanted in (numeric.name, numeric.digest, numeric.alias):
        assert find_flavor(wanted) is numeric
    with pytest.raises(UsageError, match="STO-P002"):
        find_flavor("")


def test_shipped_pins_are_the_locked_ones() -> None:
    root = Path(str(resources.files("stoilo"))).parent
    files = ("dev.txt", "torch.txt")  # torch's own file is pinned apart (setup.sh)
    locked = [(root / "requirements" / name).read_text("utf-8") for name in files]
    pins = [line.split(" ")[0] for text in locked for line in text.splitlines()]
    for flavor in shipped_flavors():
        assert set(flavor.requirements) <= set(pins)


def test_alias_of_listing_4_holds_every_module_that_runs_there() -> None:
    flavor = find_flavor(foreign_ids()[LISTING_MD5])
    named = set(parse_manifest(LISTING).modules)
    assert named - set(flavor.modules) == {"cloudpickle"}


@pytest.mark.parametrize(
    ("flavor", "missing"),
    [("tensor", "torchvision"), ("pure", "numpy"), ("x", "numpy")],
)
def test_alias_to_a_set_that_lacks_a_library_is_refused(flavor, missing) -> None:
    text = f'[abc]\nflavor = "{flavor}"\nmodules = ["numpy", "torch", "torchvision"]\n'
    with pytest.raises(InternalError, match="STO-P001") as error:
        read_aliases(text, shipped_flavors())
    assert f"no {missing}" in error.value.message
