"""Which names become files and which addresses a volunteer follows. Pure.

A project is hostile here: it must neither write outside of its directory nor point its
volunteers at services in their own network.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import Final
from urllib.parse import urljoin, urlsplit

from stoilo.core.errors import TrustError, UnreachableError

PAGE_CHARS: Final = 64 * 1024
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_MIRROR = re.compile(
    r"https?://[A-Za-z0-9.-]{1,100}(?::[0-9]{1,5})?/[A-Za-z0-9._~/-]{1,200}"
)
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
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
        UnreachableError: ``STO-X001`` when the page names none of the same server.
    """
    match = _LINK.search(page[:PAGE_CHARS].decode("utf-8", "replace"))
    if match is None:
        raise UnreachableError("STO-X001", "the master page names no scheduler")
    return same_origin(master_url, match[1] or match[2], code="STO-X001")


def may_ask(master_url: str, url: str, name: str) -> bool:
    """Say whether a file may be asked for at a mirror that the project names.

    Only what is named by its SHA-256, so that nothing of a mirror is believed; only by
    a URL that ends with that name; never by another spelling of an address than its
    usual one (``127.1``, ``0x7f.1``); and, unless the project itself is there, not where
    an address says that it is somebody's own network. Names are not resolved.
    """
    if not (_DIGEST.fullmatch(name) and _MIRROR.fullmatch(url)):
        return False
    if not url.endswith(f"/{name}") or ".." in url:
        return False
    there, here = urlsplit(url), urlsplit(master_url)
    if there.scheme == "http" and here.scheme == "https":
        return False
    host = there.hostname or ""
    if _is_odd(host):
        return False
    return not _is_inside(host) or _is_inside(here.hostname or "")


def _is_odd(host: str) -> bool:
    """Say whether a host is a number that resolvers read and `ip_address` does not.

    No name of the open Internet ends with a number, so none is lost.
    """
    try:
        ip_address(host)
    except ValueError:
        return bool(_NUMBER.fullmatch(host.rstrip(".").rpartition(".")[2]))
    return False


def _is_inside(host: str) -> bool:
    try:
        return not ip_address(host).is_global
    except ValueError:
        return "." not in host.rstrip(".") or host.rstrip(".").endswith(
            (".local", ".localhost", ".internal")
        )


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
