"""Asking for checkpoint signatures with the proof that the new tree extends the old one.

The signer remembers only its last checkpoint; what shows it that a larger tree has not
rewritten the smaller one is a consistency proof (RFC 6962 2.1.2). This is the server's
side: it reads the proof's nodes out of the log's tiles, which are on disk before a
checkpoint is signed.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from stoilo.audit.format.merkle import consistency_proof, parse_checkpoint
from stoilo.audit.format.tiles import Tile, TileNodes, render_tile_path
from stoilo.signer.process.client import SignerClient


class CheckpointSigner:
    """Callable of `audit.sequencer.Sequencer.open`: checkpoint body → signed note."""

    def __init__(self, client: SignerClient, log_directory: Path) -> None:
        """Remember whom to ask.

        Args:
            client: the signer's client.
            log_directory: holds ``checkpoint`` and ``tile/``, as published.
        """
        self._client = client
        self._nodes = TileNodes(partial(_read_tile, log_directory))

    def __call__(self, body: bytes) -> bytes:
        """Return the signed note.

        Raises:
            TrustError: STO-K025 to STO-K027 from the signer, STO-L031 a tile is missing.
            UnreachableError: STO-K020.
        """
        new = parse_checkpoint(body).size
        old = self._client.ping().size
        proof: list[bytes] = []
        # Nothing to prove for the first leaves, or for a tree signed before.
        if 0 < old < new:
            proof = consistency_proof(
                old, new, lambda level, index: self._nodes.node(level, index, new)
            )
        return self._client.sign_checkpoint(body, proof)


def _read_tile(directory: Path, tile: Tile) -> bytes | None:
    """Return a published tile's bytes, None when it is absent."""
    try:
        return (directory / render_tile_path(tile)).read_bytes()
    except FileNotFoundError:
        return None
