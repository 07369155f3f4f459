"""BOINC's account look-up: an account key for an e-mail address and password. Pure.

The password itself does not travel: BOINC sends its MD5 with the address, which is as good
as the password for whoever hears it. So it is asked over https, or on this computer.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final
from urllib.parse import urlencode

from stoilo.core.errors import DeniedError, TrustError
from stoilo.executor.xmltext import XmlBounds, parse_xml

__all__ = ["parse_account", "render_lookup"]

BOUNDS: Final = XmlBounds(document_bytes=64 * 1024, elements=64)
_KEY = re.compile(r"[0-9A-Za-z_]{16,256}")


def render_lookup(email: str, password: str) -> str:
    """Return the address of the question, relative to the master URL."""
    given = (password + email.lower()).encode()
    hashed = hashlib.md5(given, usedforsecurity=False).hexdigest()
    query = urlencode({"email_addr": email, "passwd_hash": hashed})
    return f"lookup_account.php?{query}"


def parse_account(data: bytes) -> str:
    """Return the account key in a (hostile) answer.

    Raises:
        DeniedError: STO-X048 the project says no.
        TrustError: STO-X030 the answer cannot be read.
    """
    root = parse_xml(data, BOUNDS)
    if root.tag == "error":
        words = root.string("error_msg", longest=1000)[:200]
        raise DeniedError("STO-X048", f"the project refused the account: {words}")
    key = root.string("authenticator")
    if not _KEY.fullmatch(key):
        raise TrustError("STO-X030", "the project's answer holds no account key")
    return key
