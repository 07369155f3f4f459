"""The project's half of BOINC's texts: pages, accounts, uploads; `requests`, `replies`.

Every request is hostile. The shapes are those of reference/boinc.md §3.1 to §3.5.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from stoilo.core.boinc.xml import XmlBounds, escape, parse_xml
from stoilo.core.errors import TrustError
from stoilo.executor.volunteer.scheduler_rpc import check_name
from stoilo.server.engines.embedded.accounts.passwords import MIN_CHARS
from stoilo.server.engines.embedded.web.replies import leaf, render_reply
from stoilo.server.engines.embedded.web.requests import natural, parse_request
from stoilo.server.engines.embedded.workunits.uploads import UploadHead

__all__ = [
    "UPLOAD_HEAD_BYTES",
    "ProjectConfig",
    "SizeQuery",
    "parse_request",
    "parse_upload",
    "render_account",
    "render_account_error",
    "render_config",
    "render_master_page",
    "render_reply",
    "render_upload_reply",
]

UPLOAD_HEAD_BYTES = 16 * 1024
UPLOAD_BOUNDS = XmlBounds(document_bytes=UPLOAD_HEAD_BYTES + 64, elements=64, depth=6)
_MD5 = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class SizeQuery:
    """How much of an upload does the project hold?"""

    name: str


@dataclass(frozen=True, slots=True)
class ProjectConfig:
    """What a manager asks before it attaches."""

    name: str  # of the project
    master_url: str  # with final slash
    platforms: tuple[str, ...] = ()  # BOINC's names of those with a program
    account_creation: bool = True  # whether accounts can be made over the web


def parse_upload(head: bytes) -> UploadHead | SizeQuery:
    """Return a hostile upload request's head: all up to and including ``<data>``.

    Raises:
        TrustError: ``STO-X030``.
    """
    text, cut, _ = head.partition(b"<data>")
    end = b"</file_upload></data_server_request>" if cut else b""
    root = parse_xml(text + end, UPLOAD_BOUNDS)
    if root.tag != "data_server_request":
        raise TrustError("STO-X030", "this is not an upload")
    if root.find("get_file_size") is not None:
        return SizeQuery(check_name(root.string("get_file_size")))
    upload = root.find("file_upload")
    info = upload.find("file_info") if upload else None
    if upload is None or info is None or not cut:
        raise TrustError("STO-X030", "this upload has no file")
    md5 = upload.string("md5_cksum")
    if not _MD5.fullmatch(md5):
        raise TrustError("STO-X030", "this upload has no usable md5_cksum")
    return UploadHead(
        name=check_name(info.string("name")),
        nbytes=natural(upload, "nbytes"),
        md5=md5,
        offset=natural(upload, "offset"),
    )


def render_upload_reply(
    status: int, *, size: int | None = None, why: str = ""
) -> bytes:
    """Return an upload's answer: 0 ok, 1 try again, -1 never."""
    lines = ["<data_server_reply>", leaf("status", status)]
    if size is not None:
        lines.append(leaf("file_size", size))
    if why:
        lines.append(leaf("message", why))
    return "\n".join([*lines, "</data_server_reply>", ""]).encode()


def render_master_page(project: str, scheduler: str, pages: str = "") -> bytes:
    """Return the project's front page; the link has a line of its own.

    Args:
        project: its name.
        scheduler: URL of the scheduler.
        pages: where people read the audit log, empty when there are no pages.
    """
    log = f'<p><a href="{escape(pages)}">The audit log</a></p>' if pages else ""
    return (
        f"<!DOCTYPE html>\n<html><head><title>{escape(project)}</title>\n"
        f'<link rel="boinc_scheduler" href="{escape(scheduler)}">\n'
        f"</head><body><p>{escape(project)}: a stoilo project.</p>{log}\n"
        '<p><a href="preferences">Preferences of volunteers</a></p></body></html>\n'
    ).encode()


def render_config(config: ProjectConfig) -> bytes:
    """Return what `get_project_config` answers."""
    fields = [
        ("name", config.name),
        ("master_url", config.master_url),
        ("web_rpc_url_base", config.master_url),
        ("min_passwd_length", MIN_CHARS),
        ("sched_stopped", 0),
        ("web_stopped", 0),
    ]
    lines = [leaf(tag, value) for tag, value in fields]
    if not config.account_creation:
        lines += ["<account_creation_disabled/>", "<client_account_creation_disabled/>"]
    lines += ["<platforms>", *map(_platform, config.platforms), "</platforms>"]
    return "\n".join(["<project_config>", *lines, "</project_config>", ""]).encode()


def _platform(name: str) -> str:
    """Return one platform that the project has a program for."""
    return (
        f"<platform>{leaf('platform_name', name)}"
        f"{leaf('user_friendly_name', name)}</platform>"
    )


def render_account(key: str) -> bytes:
    """Return the answer to a successful account call."""
    return f"<account_out>{leaf('authenticator', key)}</account_out>\n".encode()


def render_account_error(number: int, message: str) -> bytes:
    """Return the answer to a failed account call (BOINC's error numbers)."""
    return (
        f"<error>{leaf('error_num', number)}{leaf('error_msg', message)}</error>\n"
    ).encode()
