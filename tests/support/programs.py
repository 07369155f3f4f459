"""Programs of stock BOINC clients with a key of their own, for tests."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from stoilo.core.boinc.codesign import md5_hex, render_boinc_public
from stoilo.server.engines.programs import AppProgram, CodeSignKey, SignedFile
from stoilo.server.release.parts import ReleasedPrograms
from stoilo.signer.boinc_keys import generate_boinc_key, sign_md5

if TYPE_CHECKING:
    from stoilo.signer.boinc_keys import BoincPrivateKey

__all__ = ["LINUX", "ProgramSigner"]

LINUX = "x86_64-pc-linux-gnu"


class ProgramSigner:
    """A throw-away code-sign key and what it has signed.

    Attributes:
        private: the key; a real project's never comes near a server.
        key: what the engine is given.
    """

    def __init__(self) -> None:
        self.private: BoincPrivateKey = generate_boinc_key()
        self.key = CodeSignKey(render_boinc_public(self.private.public))

    def sign(self, data: bytes) -> SignedFile:
        """Return a file with its signature."""
        digest = hashlib.sha256(data).hexdigest()
        return SignedFile(digest, data, sign_md5(md5_hex(data), self.private))

    def program(
        self,
        launcher: bytes = b"#!/bin/sh\n",
        verifier: bytes = b"verifier",
        *,
        platform: str = LINUX,
    ) -> AppProgram:
        """Return a signed program."""
        return AppProgram(platform, self.sign(launcher), self.sign(verifier))

    def offer(self) -> ReleasedPrograms:
        """Return a release with one program, as an installation takes it."""
        return ReleasedPrograms((self.program(),), self.key)
