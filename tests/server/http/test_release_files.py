from __future__ import annotations

import base64
import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette

from stoilo.core.digests import content_digest
from stoilo.executor.verifier.trust import load_trust, parse_release_pack
from stoilo.server.http import release_files
from stoilo.server.http.release_files import is_public_name, read_index, release_routes
from stoilo.server.release.expiry import judge_trusted
from stoilo.signer.release_status import ReleaseStatus, read_roles
from tests.support.gate import INSTALLED, NOW
from tests.support.release import ReleasedProject, flavor_files

ARCHIVE = bytes(range(256)) * 20_000  # larger than what is answered from memory
SMALL = b"a small archive"
FLAVOR = content_digest(b"flavor")


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


Get = Callable[..., Answer]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> ReleasedProject:
    folder = tmp_path_factory.mktemp("served")
    parts = flavor_files(folder / "big", "pure", FLAVOR, archive=ARCHIVE)
    parts |= flavor_files(folder / "small", "numeric", FLAVOR, archive=SMALL)
    made = ReleasedProject(folder / "keys", "project.example/log", INSTALLED)
    made.parts = parts
    made.publish(NOW)
    return made


@pytest.fixture(scope="module")
def get(project: ReleasedProject) -> Iterator[Get]:
    def status() -> ReleaseStatus:
        roles = read_roles(project.directory, NOW)
        return judge_trusted(roles, project.trust(NOW), NOW)

    app = Starlette(routes=release_routes(project.directory, status))
    server = uvicorn.Server(
        uvicorn.Config(app, port=0, log_level="error", lifespan="off")
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]

    def ask(name: str, **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        connection.request("GET", f"/release/{name}", headers=named)
        found = connection.getresponse()
        answer = Answer(found.status, dict(found.getheaders()), found.read())
        connection.close()
        return answer

    yield ask
    server.should_exit = True
    thread.join()


def archive_name(get: Get, flavor: str = "pure") -> str:
    names = [one["name"] for one in json.loads(get("index.json").body)["files"]]
    return next(name for name in names if f"/{flavor}/" in name and "tar.xz" in name)


def test_everything_that_the_index_names_is_there_as_it_says(get: Get) -> None:
    files = json.loads(get("index.json").body)["files"]
    assert len(files) > 15
    for one in files:
        body = get(one["name"]).body
        assert (len(body), content_digest(body)) == (one["size"], one["sha256"])


def test_release_fetched_over_http_verifies(get: Get, project: ReleasedProject) -> None:
    names = [one["name"] for one in json.loads(get("index.json").body)["files"]]
    small = [name for name in names if name.endswith((".json", ".txt", ".toml"))]
    kept = [name for name in small if name.startswith(("metadata/", "targets/"))]
    rows = {name: get(name).body for name in kept}
    pack = json.dumps({k: base64.b64encode(v).decode() for k, v in rows.items()})
    files = parse_release_pack(pack.encode())
    root = get("root.json").body
    trust = load_trust(files, root, NOW, installed=INSTALLED, release_build=True)
    assert trust == project.trust(NOW)


def test_private_keys_and_memory_are_never_served(
    get: Get, project: ReleasedProject
) -> None:
    private = [
        path.relative_to(project.directory).as_posix()
        for folder in ("online", "state")
        for path in (project.directory / folder).rglob("*")
    ]
    assert len(private) > 5
    tries = [*private, *(f"targets/../{name}" for name in private)]
    tries += [f"%2e%2e/keys/{name}" for name in private]
    assert {get(name).status for name in tries} == {404}
    assert not any(is_public_name(name) for name in tries)


def test_without_the_rule_of_names_private_keys_would_leak(
    get: Get, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release_files, "is_public_name", lambda _name: True)
    assert b"PRIVATE KEY" in get("online/log.pem").body


@pytest.mark.parametrize(
    "name",
    ["", "metadata", "metadata/", "targets", "metadata/.1.root.json.new",
     "metadata/../root.json", "/etc/passwd", "root.json/", "metadata/0.root.json"],
)  # fmt: skip
def test_only_whole_names_of_public_files_are_answered(get: Get, name: str) -> None:
    assert get(name).status == 404


def test_link_is_not_followed(get: Get, project: ReleasedProject) -> None:
    link = project.directory / "metadata" / "7.root.json"
    link.symlink_to(project.directory / "online" / "log.pem")
    try:
        assert get("metadata/7.root.json").status == 404
    finally:
        link.unlink()


def test_large_archive_goes_on_where_it_stopped(get: Get) -> None:
    name = archive_name(get)
    part = get(name, Range="bytes=1000000-")
    assert (part.status, part.body) == (206, ARCHIVE[1_000_000:])
    whole = get(name)
    assert (whole.status, whole.body) == (200, ARCHIVE)
    assert whole.headers["etag"] == f'"{content_digest(ARCHIVE)}"'


def test_range_of_a_small_file_is_given_too(get: Get) -> None:
    part = get(archive_name(get, "numeric"), Range="bytes=2-6")
    assert (part.status, part.body) == (206, SMALL[2:7])


@pytest.mark.parametrize("flavor", ["pure", "numeric"])
def test_what_a_reader_has_is_not_sent_again(get: Get, flavor: str) -> None:
    first = get(archive_name(get, flavor))
    assert "immutable" in first.headers["cache-control"]
    again = get(archive_name(get, flavor), If_None_Match=first.headers["etag"])
    assert (again.status, again.body) == (304, b"")


@pytest.mark.parametrize("name", ["metadata/timestamp.json", "index.json", "root.json"])
def test_what_may_change_is_asked_for_anew(get: Get, name: str) -> None:
    assert get(name).headers["cache-control"] == "no-cache"


def test_index_follows_a_publication(get: Get, project: ReleasedProject) -> None:
    before = get("index.json").body
    project.publish(NOW + 120 * 86_400)
    after = get("index.json").body
    assert b"2.targets.json" in after
    assert b"2.targets.json" not in before


def test_status_says_how_long_the_release_holds(get: Get) -> None:
    page = json.loads(get("status.json").body)
    assert (page["origin"], page["development"]) == ("project.example/log", False)
    assert {one["part"] for one in page["parts"]} == {"pure", "numeric"}


def test_index_of_nothing_is_empty(tmp_path: Path) -> None:
    assert read_index(tmp_path).files == ()


@given(st.text(max_size=60), st.sampled_from(["", "metadata/", "targets/", "boinc/"]))
def test_no_public_name_leaves_its_folder(tail: str, folder: str) -> None:
    if is_public_name(folder + tail):
        parts = Path(folder + tail).parts
        assert not {"..", "online", "state", "offline"} & set(parts[:1])
        assert not any(part.startswith(".") for part in parts)
