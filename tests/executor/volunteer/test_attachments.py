"""Attachments on the disk: names, words that start a volunteer, damage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import TrustError, UsageError
from stoilo.executor.volunteer.attachments import (
    AttachmentFile,
    Attachments,
    Means,
    arguments_of,
    choose_means,
    directory_name,
)

URL = "https://project.example/stoilo/"


@pytest.mark.parametrize(
    ("url", "name"),
    [
        (URL, "project.example_stoilo"),
        ("http://127.0.0.1:8080/", "127.0.0.1_8080"),
        ("http://x/..%2f../", "x_.._2f"),
    ],
)
def test_directory_is_named_as_boinc_names_a_project(url, name):
    assert directory_name(url) == name


@given(st.text(max_size=300))
def test_any_address_gives_one_harmless_name(url):
    name = directory_name(f"http://{url}/")
    assert 0 < len(name) <= 100
    assert "/" not in name
    assert not name.startswith(".")


@pytest.mark.parametrize(
    ("means", "words"),
    [
        (Means.ROOT, ["--root", "{}/root.json"]),
        (Means.RELEASED, ["--root", "{}/root.json", "--project-programs"]),
        (Means.LAUNCHER, ["--launcher", "/l"]),
        (Means.TRUSTED, ["--trust-project-programs"]),
    ],
)
def test_volunteer_starts_by_what_was_said_and_the_key_is_no_word(
    tmp_path, means, words
):
    launcher = "/l" if means is Means.LAUNCHER else ""
    said = AttachmentFile(URL, means, launcher=launcher)
    made = Attachments(tmp_path / "data").add(said, "secret-key", root=b"{}")
    started = arguments_of(made)
    assert started[-len(words) :] == [word.format(made.directory) for word in words]
    assert not any("secret-key" in word for word in started)
    assert (made.directory / "key").read_text() == "secret-key\n"


@pytest.mark.parametrize(
    "said",
    [
        (False, False, False, False),
        (True, True, False, False),
        (False, False, True, False),
        (True, False, False, True),
        (False, True, True, False),
    ],
)
def test_means_that_exclude_each_other_are_refused(said):
    names = ("root", "launcher", "project_programs", "trust_project_programs")
    with pytest.raises(UsageError, match="STO-U003"):
        choose_means(**dict(zip(names, said, strict=True)))


@pytest.mark.parametrize(
    "damage",
    [
        lambda place: (place / "attachment.json").write_bytes(b"{"),
        lambda place: (place / "attachment.json").write_bytes(b'{"project":"x","y":1}'),
        lambda place: place.chmod(0o755),
    ],
)
def test_damaged_attachment_is_named_not_skipped(tmp_path, damage):
    attachments = Attachments(tmp_path / "data")
    made = attachments.add(AttachmentFile(URL, Means.TRUSTED), "key")
    assert attachments.find(URL).said == made.said  # the negative control
    damage(made.directory)
    with pytest.raises(TrustError, match="STO-X047"):
        attachments.every()


def test_attachment_is_found_by_its_url_or_name(tmp_path):
    attachments = Attachments(tmp_path / "data")
    made = attachments.add(AttachmentFile(URL, Means.TRUSTED), "key")
    for name in (URL, URL.rstrip("/"), "project.example_stoilo"):
        assert attachments.find(name) == made
    with pytest.raises(UsageError, match="STO-X045"):
        attachments.find("https://project.example/")
