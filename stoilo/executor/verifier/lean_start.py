"""What a verifier's start leaves out. `verifier.main` imports it before all else.

Importing python-tuf's client would load an HTTP client with TLS, and signers that talk to
clouds, hardware and gpg: a third of a verifier's start, and code that no volunteer has
reviewed. While the client is imported, those modules are stood in for by empty ones; the
keys that they would read are unknown afterwards, so metadata that names one is refused.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final

LEFT_OUT: Final = {
    "tuf.ngclient.urllib3_fetcher": ("Urllib3Fetcher",),
    "securesystemslib.signer._aws_signer": ("AWSSigner",),
    "securesystemslib.signer._azure_signer": ("AzureSigner",),
    "securesystemslib.signer._gcp_signer": ("GCPSigner",),
    "securesystemslib.signer._gpg_signer": ("GPGKey", "GPGSigner"),
    "securesystemslib.signer._hsm_signer": ("HSMSigner",),
    "securesystemslib.signer._sigstore_signer": ("SigstoreKey", "SigstoreSigner"),
    "securesystemslib.signer._tkey_signer": ("TKeySigner",),
    "securesystemslib.signer._vault_signer": ("VaultSigner",),
}
"""Modules that are not loaded → the classes that others take from them."""


class _Absent:
    """Stands for a class of a module that is left out."""

    SCHEME = ""


@contextmanager
def _without() -> Iterator[None]:
    """Let imports find empty modules in place of `LEFT_OUT`, unless they are loaded."""
    added = []
    for name, classes in LEFT_OUT.items():
        if name in sys.modules or name.rpartition(".")[0] in sys.modules:
            continue
        stand_in = ModuleType(name)
        for one in classes:
            setattr(stand_in, one, type(one, (_Absent,), {}))
        sys.modules[name] = stand_in
        added.append(name)
    try:
        yield
    finally:
        for name in added:
            del sys.modules[name]


def _forget_absent(table: dict[Any, type]) -> None:
    for key in [key for key, kind in table.items() if issubclass(kind, _Absent)]:
        del table[key]


if getattr(sys, "frozen", False):
    gc.disable()  # `main` collects once, when all is imported

with _without():
    from securesystemslib.signer import (
        KEY_FOR_TYPE_AND_SCHEME,
        SIGNER_FOR_URI_SCHEME,
    )
    from tuf.ngclient import updater as _updater

del _updater
_forget_absent(KEY_FOR_TYPE_AND_SCHEME)
_forget_absent(SIGNER_FOR_URI_SCHEME)
