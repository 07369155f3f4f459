import json

import pytest
from tuf.api.metadata import Metadata, Root

from stoilo.core.errors import TrustError
from stoilo.executor.verifier.tuf_client import check_form, check_keys
from tests.support.gate import NOW
from tests.support.metadata import MetadataBench


@pytest.fixture(scope="module")
def bench() -> MetadataBench:
    return MetadataBench(NOW)


def test_what_our_tools_write_is_in_form(bench: MetadataBench) -> None:
    for name, data in bench.files.items():
        if name.startswith("metadata/"):
            check_form(data, name)


@pytest.mark.parametrize(
    "spell",
    [
        lambda text: json.dumps(json.loads(text)).encode(),
        lambda text: json.dumps(json.loads(text), indent=1).encode(),
        lambda text: text + b"\n",
        lambda text: text.replace(b'"version":1', b'"version":1.0'),
        lambda text: text.replace(b'"version":1', b'"version":2,"version":1'),
        lambda text: b"\xef\xbb\xbf" + text,
    ],
)
def test_other_spellings_are_refused(bench: MetadataBench, spell) -> None:
    data = spell(bench.files["metadata/timestamp.json"])
    with pytest.raises(TrustError, match="STO-K013"):
        check_form(data, "timestamp.json")


@pytest.mark.parametrize("data", [b"{}", b"[]", b"1"])
def test_what_is_no_metadata_is_left_to_the_client(data: bytes) -> None:
    check_form(data, "timestamp.json")


def test_key_under_two_ids_is_refused_in_its_own_role_only(
    bench: MetadataBench,
) -> None:
    root = Metadata[Root].from_bytes(bench.trusted).signed
    check_keys(root)
    key = root.keys[root.roles["snapshot"].keyids[0]]
    other = type(key)("ab" * 32, key.keytype, key.scheme, dict(key.keyval))
    root.add_key(other, "timestamp")  # one key may have two roles
    check_keys(root)
    root.add_key(other, "snapshot")
    with pytest.raises(TrustError, match="STO-K012"):
        check_keys(root)
