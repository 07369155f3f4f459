"""Flavors that the policy role names: beside the targets role's, never in their place."""

from types import SimpleNamespace

import msgspec
import pytest

from stoilo.core.digests import content_digest
from stoilo.core.errors import TrustError
from stoilo.executor.verifier.targets import (
    ArchiveFile,
    PartFile,
    part_target,
    read_parts,
)

X86, ARM = "x86_64-linux", "aarch64-linux"


def part(name, role="policy", platform=X86, **changes):
    made = PartFile(
        format="stoilo-part/1",
        part=name,
        platform=platform,
        version="1",
        serial=1,
        archive=ArchiveFile("a.tar.xz", 5, content_digest(b"files")),
        tree=content_digest(b"files"),
        role=role,
    )
    if name not in {"launcher", "verifier"}:
        manifest = content_digest(name.encode())
        changes = {"flavor": manifest, "alias": manifest[:32]} | changes
    return msgspec.structs.replace(made, **changes)


def read(*parts, names=None):
    """Return the parts of a release that names these and their files."""
    records = {
        name: msgspec.json.encode(one)
        for name, one in zip(
            names or [f"{one.target}.json" for one in parts], parts, strict=True
        )
    }
    file = SimpleNamespace(hashes={"sha256": content_digest(b"files")}, length=5)
    suffixes = ("", ".tar", ".tar.xz", ".tree")
    return read_parts(
        records, {f"{one.target}{end}": file for one in parts for end in suffixes}
    )


def test_flavors_of_both_roles_stand_beside_each_other():
    found = read(
        part("numeric", "targets"), part("science"), part("science", "policy", ARM)
    )
    assert {one.target for one in found} == {
        f"flavor/numeric/{X86}",
        f"policy/flavor-science.{X86}",
        f"policy/flavor-science.{ARM}",
    }


@pytest.mark.parametrize(
    "stolen",
    [
        part("verifier"),
        part("launcher"),
        part("verifier", flavor=content_digest(b"x")),
        part("numeric"),
        part("numeric", platform=ARM),
        part("other", flavor=content_digest(b"numeric")),
        part("other", alias=content_digest(b"numeric")[:32]),
        part("no-flavor", flavor=""),
    ],
    ids=lambda one: f"{one.part}-{one.platform}-{one.flavor[:4]}",
)
def test_thief_of_the_policy_role_replaces_nothing(stolen):
    honest = (part("verifier", "targets"), part("numeric", "targets"))
    assert len(read(*honest, part("science"))) == 3
    with pytest.raises(TrustError, match="STO-K013"):
        read(*honest, stolen)


@pytest.mark.parametrize(
    ("role", "name"),
    [
        ("targets", part_target("science", X86, "policy")),
        ("policy", part_target("science", X86)),
        ("policy", part_target("other", X86, "policy")),
        ("policy", part_target("science", ARM, "policy")),
    ],
)
def test_record_that_lies_where_it_does_not_belong_is_refused(role, name):
    with pytest.raises(TrustError, match="STO-K013"):
        read(part("science", role), names=[f"{name}.json"])
