"""The input files of a project's workunits: who puts them there, and who takes them away.

Files come before the row that needs them and go after the last such row; `turn` keeps the
two from overtaking each other.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from typing import TYPE_CHECKING, Final

from stoilo.executor.verifier.release.trust import parse_release_pack
from stoilo.executor.verifier.workunit import RELEASE
from stoilo.server.engines.stock.creation import Draft
from stoilo.server.engines.stock.jobs import stdin_line
from stoilo.server.engines.stock.staging import Stage, StagedFile
from stoilo.server.engines.stock.sweeping import stray_files
from stoilo.server.engines.stock.templates import (
    InputSlot,
    input_template,
    result_template,
)
from stoilo.server.engines.workunits import WorkunitFile

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from stoilo.server.engines.stock.database import Database
    from stoilo.server.engines.stock.project import StockProject
    from stoilo.server.engines.stock.settings import Settings
    from stoilo.server.engines.workunits import WorkunitSpec


__all__ = ["Inputs"]

_SECRET: Final = "secret"  # noqa: S105 - a row's name
_RELEASE: Final = "release"


class Inputs:
    """One project's input files.

    Args:
        project: as it lies on the disk.
        settings: of it; holds the secret that files' names follow from, and the release.

    Attributes:
        turn: to be held from `draft` until the rows are stored, and while removing.
        release: what goes out with every workunit, None before `set_release`.

    Raises:
        InternalError: ``STO-E003``.
    """

    def __init__(self, project: StockProject, settings: Settings) -> None:
        self._settings = settings
        self._templates = project.templates
        settings.write(_SECRET, secrets.token_hex(32), replace=False)
        self.stage = Stage(
            project.download,
            project.config.fanout,
            bytes.fromhex(settings.read(_SECRET)),
            beside=(project.templates,),
        )
        self.turn = threading.Lock()
        self.release = _parse_release(settings.read(_RELEASE))
        self._retained: frozenset[str] = frozenset()

    def draft(self, specs: Sequence[WorkunitSpec]) -> list[Draft]:
        """Stage workunits' files durably; return what their rows will say.

        Raises:
            TrustError: ``STO-E002``, ``STO-B004``.
            InternalError: ``STO-E003``.
        """
        drafts = [self._draft(spec) for spec in specs]
        self.stage.sync()
        return drafts

    def set_release(self, bundle: bytes) -> None:
        """Store the release metadata that goes out from now on.

        Raises:
            TrustError: ``STO-K013`` when it is no release.
            InternalError: ``STO-E003``.
        """
        parse_release_pack(bundle)
        digest = hashlib.sha256(bundle).hexdigest()
        with self.turn:
            file = WorkunitFile(RELEASE, digest, bundle, sticky=True)
            staged = self.stage.add([file])[digest]
            self.stage.sync()
            text = f"{staged.name} {staged.size} {staged.md5}"
            self._settings.write(_RELEASE, text)
            self.release = staged

    def retain(self, digests: Collection[str]) -> None:
        """Keep files of these digests though no workunit needs them."""
        self._retained = frozenset(map(self.stage.name_of, digests))

    def remove(self, names: Collection[str]) -> None:
        """Remove files that no workunit claims; those that are to stay, stay."""
        current = {self.release.name} if self.release is not None else set()
        self.stage.remove(sorted(set(names) - self._retained - current))

    def remove_strays(self, database: Database) -> None:
        """Remove what no row has ever claimed, or a crash has left."""
        with self.turn:
            self.remove(stray_files(database, self.stage.names()))
            self.stage.remove_drafts()

    def _draft(self, spec: WorkunitSpec) -> Draft:
        staged = self.stage.add(spec.files)
        names = [staged[file.digest].name for file in spec.files]
        slots = [InputSlot(file.open_name, file.sticky) for file in spec.files]
        release = self.release.name if self.release is not None else ""
        if release:
            names.append(release)
            slots.append(InputSlot(RELEASE, sticky=True))
        inputs = input_template(spec, tuple(slots))
        outputs = result_template(spec.result_max_bytes)
        for template in (inputs, outputs):
            self.stage.write(self._templates / template.name, template.text)
        draft = Draft(spec, tuple(names), inputs.name, outputs.name, release)
        stdin_line(draft.job())  # refuses what BOINC could not be told
        return draft


def _parse_release(text: str) -> StagedFile | None:
    if not text:
        return None
    name, size, md5 = text.split()
    return StagedFile(name, int(size), md5)
