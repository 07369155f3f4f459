"""A private key is found wherever it lies; what was not read is never called clean."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from stoilo.server.engines.stock.installation import privatekeys
from stoilo.server.engines.stock.installation.owner import Owner, acting_as
from stoilo.server.engines.stock.installation.privatekeys import (
    KeySearch,
    find_private_keys,
)
from stoilo.signer.boinc_keys import generate_boinc_key, render_boinc_private

KEY = render_boinc_private(generate_boinc_key())
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIB\n"
STRANGER = Owner(65534, 65534, (65534,))


@pytest.fixture
def root():
    made = Path(tempfile.mkdtemp(prefix="st-keys-"))
    made.chmod(0o755)
    if any(not one.stat().st_mode & 0o001 for one in made.parents):
        made.rmdir()
        pytest.skip("others may not enter the folder for temporary files")
    for name in ("keys", "html/inc", "download", "upload"):
        (made / name).mkdir(parents=True)
    (made / "keys" / "upload_private").write_text(KEY)
    yield made
    shutil.rmtree(made)


def search(root, key_dir=None):
    skipped = (root / "download", root / "upload")
    return find_private_keys(root, key_dir or root / "keys", skipped)


@contextmanager
def no_rights():
    """Become somebody else where root would read everything."""
    with acting_as(STRANGER) if os.geteuid() == 0 else nullcontext():
        yield


@pytest.mark.parametrize("text", [KEY, PEM, KEY + "x" * 20_000, "# old\n" * 9 + PEM])
@pytest.mark.parametrize("name", ["keys/old/key1", "html/inc/x.inc", "backup"])
def test_key_is_found_wherever_it_lies(root, name, text):
    (root / name).parent.mkdir(exist_ok=True)
    (root / name).write_text(text)
    assert search(root).found == (name,)


def test_project_without_one_is_clean(root):
    assert search(root) == KeySearch()


def test_files_of_hosts_are_not_looked_into(root):
    (root / "upload" / "result").write_text(KEY)
    assert search(root) == KeySearch()


def test_key_directory_elsewhere_does_not_hide_the_usual_one(root, tmp_path):
    (root / "keys" / "mine").write_text(KEY)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "other").write_text(KEY)
    assert search(root, tmp_path).found == (str(tmp_path / "sub/other"), "keys/mine")


def test_folder_that_a_link_among_the_keys_leads_to_is_named_as_not_read(
    root, tmp_path
):
    (tmp_path / "k").write_text(KEY)
    (root / "keys" / "old").symlink_to(tmp_path)
    assert search(root) == KeySearch(closed=("keys/old",))


def test_key_behind_a_linked_file_is_found(root, tmp_path):
    (tmp_path / "k").write_text(KEY)
    (root / "keys" / "old").symlink_to(tmp_path / "k")
    assert search(root).found == ("keys/old",)


def test_links_to_a_folder_above_are_not_walked_again(root):
    for number in range(30):
        (root / "keys" / f"{number}").symlink_to("..")
    (root / "html" / "inc" / "x").write_text(KEY)
    (root / "upload" / "result").write_text(KEY)
    assert search(root) == KeySearch(found=("html/inc/x",))


def test_link_to_the_files_of_hosts_is_named_as_not_read(root):
    (root / "keys" / "mine").symlink_to(root / "upload")
    assert search(root).closed == ("keys/mine",)


def test_more_folders_than_a_search_reads_are_named(root, monkeypatch):
    monkeypatch.setattr(privatekeys, "MOST_FILES", 20)
    for number in range(30):
        (root / "html" / f"{number}").mkdir()
    assert search(root).unseen != ()


def test_folders_deeper_than_a_search_goes_are_named(root):
    deep = root.joinpath("html", *["d"] * privatekeys.DEEPEST)
    deep.mkdir(parents=True)
    (deep / "key").write_text(KEY)
    (named,) = search(root).unseen
    assert (root / named).is_relative_to(root / "html" / "d")


def test_links_in_a_circle_come_to_an_end(root):
    (root / "keys" / "again").symlink_to(root / "keys")
    (root / "keys" / "one").write_text(KEY)
    assert len(search(root).found) == 1


@pytest.mark.parametrize("name", ["keys", "keys/old", "keys/note"])
def test_place_of_keys_that_may_not_be_read_is_named(root, name):
    path = root / name
    if name == "keys/note":
        path.write_text("x")
    else:
        path.mkdir(exist_ok=True)
    path.chmod(0)
    with no_rights():
        closed = search(root).closed
    path.chmod(0o755)
    assert closed == (name,)


def test_other_folder_that_may_not_be_read_is_named_apart(root):
    (root / "html" / "inc").chmod(0)
    with no_rights():
        found = search(root)
    (root / "html" / "inc").chmod(0o755)
    assert (found.closed, found.unseen) == ((), ("html/inc",))


def test_file_that_is_named_as_the_key_counts_though_it_cannot_be_read(root):
    path = root / "keys" / "code_sign_private"
    path.write_text("?")
    path.chmod(0)
    with no_rights():
        assert search(root).found == ("keys/code_sign_private",)


def test_pipe_does_not_hold_it_up(root):
    os.mkfifo(root / "keys" / "pipe")
    assert search(root) == KeySearch()
