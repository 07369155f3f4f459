from __future__ import annotations

import hashlib
import resource

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import InternalError, StoiloError, TrustError
from stoilo.server.engines.stock import staging
from stoilo.server.engines.stock.project.directory import fan_out, output_of, place
from stoilo.server.engines.stock.staging import Stage
from stoilo.server.engines.workunits import WorkunitFile

BODY = b"some bytes"


def file_of(source, data=BODY):
    return WorkunitFile("arguments", hashlib.sha256(data).hexdigest(), source)


@pytest.fixture
def stage(tmp_path):
    (tmp_path / "download").mkdir()
    return Stage(tmp_path / "download", 1024, b"secret")


def stored(stage):
    return sorted(path.name for path in stage._download.rglob("*") if path.is_file())


def test_fan_out_is_boincs():
    assert fan_out("hand1", 1024) == "2cf"
    assert fan_out("hand1", 0) == ""


def test_file_lies_in_its_folder_with_its_checksum_beside_it(stage):
    (staged,) = stage.add([file_of(BODY)]).values()
    stage.sync()
    path = stage.path_of(staged.name)
    assert path.read_bytes() == BODY
    assert path.parent.name == fan_out(staged.name, 1024)
    md5 = hashlib.md5(BODY, usedforsecurity=False).hexdigest()
    assert path.with_name(f"{staged.name}.md5").read_text() == f"{md5} {len(BODY)}\n"


def test_name_cannot_be_told_from_the_digest_alone(stage, tmp_path):
    digest = file_of(BODY).digest
    assert digest not in stage.name_of(digest)
    other = Stage(tmp_path / "download", 1024, b"another project")
    assert other.name_of(digest) != stage.name_of(digest)


def test_staging_again_changes_nothing_and_heals_what_is_missing(stage):
    (staged,) = stage.add([file_of(BODY)]).values()
    before = stage.path_of(staged.name).stat().st_ino
    stage.add([file_of(BODY), file_of(BODY)])
    assert stage.path_of(staged.name).stat().st_ino == before
    stage.path_of(staged.name).unlink()
    stage.add([file_of(BODY)])
    assert stage.path_of(staged.name).read_bytes() == BODY


@pytest.mark.parametrize(("mode", "linked"), [(0o644, True), (0o600, False)])
def test_only_what_everybody_may_read_is_linked(stage, tmp_path, mode, linked):
    source = tmp_path / "blob"
    source.write_bytes(BODY)
    source.chmod(mode)
    (staged,) = stage.add([file_of(source)]).values()
    path = stage.path_of(staged.name)
    assert (path.stat().st_ino == source.stat().st_ino) is linked
    assert path.stat().st_mode & 0o777 == 0o644
    assert source.stat().st_mode & 0o777 == mode


@pytest.mark.parametrize("inline", [True, False])
def test_wrong_digest_leaves_nothing(stage, tmp_path, inline):
    source = tmp_path / "blob"
    source.write_bytes(b"others")
    wrong = WorkunitFile("arguments", "0" * 64, b"others" if inline else source)
    with pytest.raises(TrustError, match="STO-E002"):
        stage.add([wrong])
    assert stored(stage) == []


def test_full_disk_is_said_and_leaves_nothing_half(stage):
    large = b"x" * 100_000
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(InternalError, match="STO-R030"):
            stage.add([file_of(large, large)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert stored(stage) == []
    stage.add([file_of(large, large)])
    assert len(stored(stage)) == 2


def test_removed_files_are_gone_and_may_come_again(stage):
    (staged,) = stage.add([file_of(BODY)]).values()
    for _ in range(2):
        stage.remove([staged.name])
    assert stored(stage) == []
    stage.add([file_of(BODY)])
    assert len(stored(stage)) == 2


def test_file_of_the_right_size_is_not_believed_after_a_power_cut(stage):
    (staged,) = stage.add([file_of(BODY)]).values()
    stage.path_of(staged.name).write_bytes(bytes(len(BODY)))
    again = Stage(stage._download, 1024, b"secret")
    again.add([file_of(BODY)])
    assert again.path_of(staged.name).read_bytes() == BODY


def test_template_that_is_there_empty_is_written(stage, tmp_path):
    template = tmp_path / "templates" / "stoilo_in_1"
    template.parent.mkdir()
    template.touch()
    stage.write(template, "<input_template/>")
    stage.write(template, "<input_template/>")
    assert template.read_text() == "<input_template/>"


def test_disk_that_refuses_is_said_and_nothing_is_believed(tmp_path):
    (tmp_path / "download").mkdir()
    beside = tmp_path / "templates"
    stage = Stage(tmp_path / "download", 1024, b"secret", beside=(beside,))
    (staged,) = stage.add([file_of(BODY)]).values()
    with pytest.raises(InternalError, match="STO-R030"):
        stage.sync()  # a folder is away
    stage.path_of(staged.name).write_bytes(bytes(len(BODY)))
    beside.mkdir()
    stage.add([file_of(BODY)])
    stage.sync()
    assert stage.path_of(staged.name).read_bytes() == BODY


@given(st.text(max_size=300))
def test_any_path_is_a_results_file_or_our_error(tmp_path_factory, path):
    try:
        found = output_of(path)
    except StoiloError as error:
        assert error.code == "STO-B003"
    else:
        root = tmp_path_factory.getbasetemp()
        assert place(root, found.name, 1024).is_relative_to(root)


@pytest.mark.parametrize("name", ["", "..", "a/b", "a..b", ".x", "a b", "x" * 300])
def test_other_names_never_become_a_path(tmp_path, name):
    with pytest.raises(TrustError, match="STO-B003"):
        place(tmp_path, name, 1024)


def test_result_is_told_from_its_files_name():
    found = output_of("/srv/p/upload/2f/t_1_0_r1843_0")
    assert (found.result, found.name) == ("t_1_0", "t_1_0_r1843_0")


def test_files_of_all_folders_begin_in_one(stage, monkeypatch):
    """A file made in a folder of its own costs many times as much on a real disk."""
    begun, write = set(), staging._write_new

    def note(path, data):
        begun.add(path.parent)
        write(path, data)

    monkeypatch.setattr(staging, "_write_new", note)
    staged = stage.add([file_of(b"%d" % n, b"%d" % n) for n in range(20)]).values()
    assert begun == {stage._drafts}
    assert len({stage.path_of(one.name).parent for one in staged}) > 10
    assert not any(stage._drafts.iterdir())


def test_drafts_that_a_crash_has_left_are_removed_and_are_no_files(stage):
    stage.remove_drafts()
    (staged,) = stage.add([file_of(BODY)]).values()
    (stage._drafts / f".{staged.name}.00").write_bytes(b"half")
    assert stage.names() == {staged.name}
    stage.remove_drafts()
    assert stored(stage) == [staged.name, f"{staged.name}.md5"]
