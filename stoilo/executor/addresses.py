"""Which names and addresses a volunteer takes from its project. Pure; all are hostile."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urljoin, urlsplit

from stoilo.core.errors import TrustError, UnreachableError

__all__ = ["check_name", "find_scheduler", "same_origin"]

PAGE_CHARS: Final = 64 * 1024
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")
_LINK = re.compile(
    r"<link rel=\"boinc_scheduler\" href=\"([^\"<>\s]{1,220})\"|"
    r"<scheduler>\s*([^<>\s]{1,220})\s*</scheduler>"
)


def check_name(name: str) -> str:
    """Return `name` when it may become a file name, else raise ``STO-X030``."""
    if not _NAME.fullmatch(name) or ".." in name:
        raise TrustError("STO-X030", "a name is not usable as a file name")
    return name


def find_scheduler(page: bytes, master_url: str) -> str:
    """Return the scheduler's URL from the project's master page (untrusted).

    Raises:
        UnreachableError: ``STO-X002`` when the page names none of the same server.
    """
    match = _LINK.search(page[:PAGE_CHARS].decode("utf-8", "replace"))
    if match is None:
        raise UnreachableError("STO-X002", "the master page names no scheduler")
    return same_origin(master_url, match[1] or match[2], code="STO-X002")


def same_origin(master_url: str, url: str, *, code: str = "STO-X030") -> str:
    """Return `url` made absolute; other schemes, hosts and ports are refused.

    A project can therefore not point its volunteers at services in their own network.
    """
    if not (url.isascii() and url.isprintable()):  # urljoin would drop line ends
        raise TrustError(code, "the project names an unusable URL")
    try:
        absolute = urljoin(master_url, url)
        there, here = urlsplit(absolute), urlsplit(master_url)
        same = (there.scheme, there.hostname, there.port, there.username) == (
            here.scheme,
            here.hostname,
            here.port,
            None,
        )
    except ValueError:
        same = False
    if not same:
        raise TrustError(code, "the project names a URL of another server")
    return absolute
