import shutil
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from stoilo.core.digests import content_digest
from stoilo.executor.verifier.targets import FloorsFile
from stoilo.executor.verifier.trust import FLOORS_FILE, travels
from tests.support.stage import DAY_S, ReleaseStage


@pytest.fixture(scope="session")
def stage() -> ReleaseStage:
    """A project and its people."""
    return ReleaseStage()


@pytest.fixture(scope="session")
def template(stage: ReleaseStage, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A first release, its parts, and five days later a newer verifier and launcher.

    What is large of the parts that were replaced is gone, as operators do.
    """
    folder = tmp_path_factory.mktemp("published")
    release = folder / "release"
    stage.publish(release, stage.first_ceremony())
    files = stage.make_parts(folder / "parts", stage.root(release), "pure")
    publish_parts(stage, release, files)
    stage.now += 5 * DAY_S
    newer = stage.make_parts(folder / "parts", stage.root(release))
    publish_parts(stage, release, newer, FloorsFile(verifier=2))
    for name, data in files.items():
        if name.startswith(("verifier/", "launcher/")) and not travels(name):
            stored_target(release, name, data).unlink()
    return release


def publish_parts(
    stage: ReleaseStage,
    release: Path,
    files: dict[str, bytes | Path],
    floors: FloorsFile | None = None,
) -> None:
    """Publish parts that both builders attest."""
    changes = stage.put(files)
    if floors is not None:
        changes |= stage.put({FLOORS_FILE: msgspec.json.encode(floors)})
    ceremony = stage.next_ceremony(release, changes)
    stage.publish(release, replace(ceremony, builds=stage.attest(files)))


def stored_target(release: Path, name: str, data: bytes | Path) -> Path:
    """Return where a target lies."""
    content = data if isinstance(data, bytes) else data.read_bytes()
    folder, _, base = name.rpartition("/")
    return release / "targets" / folder / f"{content_digest(content)}.{base}"


@pytest.fixture
def release(tmp_path: Path, template: Path) -> Path:
    """A release of its own for each test."""
    shutil.copytree(template, tmp_path / "release")
    return tmp_path / "release"
