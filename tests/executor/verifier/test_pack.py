import pytest

from stoilo.core.errors import TrustError
from stoilo.executor.verifier.trust import ReleaseFiles, parse_release_pack, travels
from stoilo.signer.release_directory import pack_release


@pytest.mark.parametrize(
    "name",
    [
        "metadata/timestamp.json",
        "targets/verifier/00.x86_64-linux.json",
        "targets/log/00.policy.txt",
        "targets/levels/00.pure.toml",
    ],
)
def test_metadata_and_small_records_travel(name: str) -> None:
    assert travels(name)


@pytest.mark.parametrize(
    "name",
    [
        "launcher/x86_64-linux",
        "verifier/x86_64-linux.tar",
        "flavor/pure/x86_64-linux.tar.xz",
        "flavor/pure/x86_64-linux.tree",
        "flavor/pure/x86_64-linux.sbom.json",
        "flavor/pure/manifest.yaml",
    ],
)
def test_programs_archives_and_their_lists_stay(name: str) -> None:
    assert not travels(name)
    kept = ("metadata/1.root.json", b"{}")
    pack = pack_release(ReleaseFiles((kept, (f"targets/{name}", b"x"))))
    assert parse_release_pack(pack) == ReleaseFiles((kept,))


@pytest.mark.parametrize(
    "name", ["", "metadata", "metadata/.x", "other/x", "targets/a/b/c/d", "metadata/x/"]
)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(TrustError, match="STO-K013"):
        parse_release_pack(b'{"%s":""}' % name.encode())


def test_file_past_the_bound_is_refused() -> None:
    large = ReleaseFiles((("metadata/1.root.json", b" " * (512 * 1024 + 1)),))
    with pytest.raises(TrustError, match="STO-K013"):
        parse_release_pack(pack_release(large))
