"""One signature, by one key, on one machine: appended to what its role may sign."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

from securesystemslib.signer import Signer
from tuf.api.exceptions import RepositoryError
from tuf.api.metadata import Metadata

from stoilo.core.errors import InternalError, UsageError
from stoilo.signer.ceremony.metadata import (
    RoleFile,
    open_root,
    open_targets,
    role_file,
)
from stoilo.signer.ceremony.proposal import Proposal
from stoilo.signer.ceremony.quorum import authorities
from stoilo.signer.ceremony.rolekeys import role_keys

__all__ = ["SigningKey", "add_signature", "sign_proposal", "signable"]


class SigningKey(Protocol):
    """An opened offline key: what it is for, whose it is, and its signer."""

    @property
    def role(self) -> str:
        """The role that the key was made for."""

    @property
    def name(self) -> str:
        """Its holder's name."""

    def signer(self) -> Signer:
        """Return securesystemslib's signer."""


def signable(proposal: Proposal, role: str, keyid: str) -> tuple[RoleFile, ...]:
    """Return the proposed files that a key made for `role` may sign."""
    return tuple(
        file
        for file in proposal.metadata
        if file.role == role
        and any(
            keyid == key.keyid
            for _, owner in authorities(proposal, role)
            for key in role_keys(owner, role)
        )
    )


def sign_proposal(proposal: Proposal, key: SigningKey) -> Proposal:
    """Return `proposal` with `key`'s signature on everything that it may sign.

    Nothing is checked here but that: what is signed is reviewed before
    (`stoilo.signer.ceremony.review`). Signing twice changes nothing.

    Raises:
        UsageError: ``STO-K067`` when it may sign nothing.
    """
    signer = key.signer()
    files = signable(proposal, key.role, signer.public_key.keyid)
    if not files:
        raise UsageError(
            "STO-K067",
            f"the key of {key.name}, made for {key.role}, signs nothing here",
            hint="`stoilo release review` lists whose signatures are missing",
        )
    done = tuple(
        add_signature(file, signer) if file in files else file
        for file in proposal.metadata
    )
    return replace(proposal, metadata=done)


def add_signature(file: RoleFile, signer: Signer) -> RoleFile:
    """Return `file` with one more signature; those that are there stay."""
    metadata: Metadata[Any]
    metadata = open_root(file) if file.role == "root" else open_targets(file)
    try:
        metadata.sign(signer, append=True)
    except RepositoryError as error:
        raise InternalError("STO-K067", f"{file.name} could not be signed") from error
    return role_file(file.role, metadata)
