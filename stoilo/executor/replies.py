"""A project's scheduler reply as records: parsed, bounded, nothing in it believed.

Everything that a stock server sends and a 7.20.5 client uses is read; what is unknown is
passed over, as that client does. The whole reply counts or none of it.
Source of the shapes: reference/boinc.md §3.4.
"""

from __future__ import annotations

import re
from typing import Final

from stoilo.core.errors import TrustError
from stoilo.executor.addresses import check_name, may_ask, same_origin
from stoilo.executor.messages import (
    AppVersion,
    FileInfo,
    FileRef,
    ProgramFile,
    ResultInfo,
    SchedulerReply,
    UploadInfo,
    UserInfo,
    WorkunitInfo,
)
from stoilo.executor.xmltext import Element, XmlBounds, parse_xml, render_xml

__all__ = ["REPLY_BOUNDS", "parse_reply"]

REPLY_BOUNDS: Final = XmlBounds(document_bytes=4 * 1024 * 1024)
MOST_RESULTS: Final = 1000
MOST_APP_VERSIONS: Final = 64
MOST_PROGRAM_FILES: Final = 16
MOST_URLS: Final = 16
MOST_DELETIONS: Final = 1000
MOST_MESSAGES: Final = 20
MESSAGE_CHARS: Final = 500
PREFERENCES_CHARS: Final = 64 * 1024
KEY_CHARS: Final = 4096
SHOWN_CHARS: Final = 254
_MD5 = re.compile(r"[0-9a-f]{32}")


def parse_reply(data: bytes, master_url: str) -> SchedulerReply:
    """Return the untrusted reply of the project at `master_url`.

    Raises:
        TrustError: ``STO-X030`` for anything unreadable, inconsistent or too much.
    """
    root = parse_xml(data, REPLY_BOUNDS)
    if root.tag != "scheduler_reply":
        raise TrustError("STO-X030", "this is not a scheduler reply")
    infos = root.every("file_info")
    programs = {
        file.info.name: file
        for file in (
            _program_file(info, master_url)
            for info in infos
            if info.find("file_signature") is not None
        )
    }
    reply = SchedulerReply(
        host_id=root.integer("hostid"),
        acks=_names(root, "result_ack"),
        aborts=_names(root, "result_abort"),
        aborts_unstarted=_names(root, "result_abort_if_not_started"),
        files=tuple(_file(info, master_url) for info in infos if _is_input(info)),
        uploads=tuple(
            _upload(info, master_url) for info in infos if info.find("upload_url")
        ),
        workunits=tuple(_workunit(item) for item in root.every("workunit")),
        results=tuple(_result(item) for item in _few(root, "result", MOST_RESULTS)),
        next_rpc_delay=max(0.0, root.number("next_rpc_delay")),
        request_delay=max(0.0, root.number("request_delay")),
        messages=tuple(
            item.text[:MESSAGE_CHARS] for item in root.every("message")[:MOST_MESSAGES]
        ),
        bad_key=root.find("stoilo_bad_key") is not None,
        down=root.find("project_is_down") is not None,
        waits=root.find("stoilo_waits") is not None,
        app_versions=_app_versions(root, programs),
        code_sign_key=_key_text(root, "code_sign_key"),
        code_sign_key_signature=_key_text(root, "code_sign_key_signature"),
        delete_files=tuple(
            check_name(item.text)
            for item in _few(root, "delete_file_info", MOST_DELETIONS)
        ),
        user=_user(root),
        project_preferences=_preferences(root, "project_preferences"),
        global_preferences=_preferences(root, "global_preferences"),
    )
    _check_references(reply)
    return reply


def _few(element: Element, tag: str, most: int) -> tuple[Element, ...]:
    """Return all children called `tag`; more than `most` refuse."""
    found = element.every(tag)
    if len(found) > most:
        raise TrustError("STO-X030", f"the reply holds more than {most} <{tag}>")
    return found


def _names(root: Element, tag: str) -> tuple[str, ...]:
    """Return the names inside every `tag`."""
    return tuple(check_name(item.string("name")) for item in root.every(tag))


def _is_input(info: Element) -> bool:
    """Whether a file is a workunit's: fetched, and not signed as a program's is."""
    return info.find("url") is not None and info.find("file_signature") is None


def _file(info: Element, master_url: str) -> FileInfo:
    """Return one input file."""
    md5 = info.string("md5_cksum")
    if not _MD5.fullmatch(md5) or info.integer("nbytes", -1) < 0:
        raise TrustError("STO-X030", "a file lacks its size or checksum")
    name = check_name(info.string("name"))
    *mirrors, url = (one.text for one in _few(info, "url", MOST_URLS))
    return FileInfo(
        name=name,
        url=same_origin(master_url, url),
        nbytes=info.integer("nbytes"),
        md5=md5,
        sticky=info.flag("sticky"),
        mirrors=tuple(one for one in mirrors if may_ask(master_url, one, name)),
    )


def _program_file(info: Element, master_url: str) -> ProgramFile:
    """Return one file of an app version; its signature stands for a checksum."""
    md5 = info.string("md5_cksum")
    if (md5 and not _MD5.fullmatch(md5)) or info.integer("nbytes", -1) < 0:
        raise TrustError("STO-X030", "a program file lacks its size")
    return ProgramFile(
        info=FileInfo(
            name=check_name(info.string("name")),
            url=same_origin(master_url, info.string("url")),
            nbytes=info.integer("nbytes"),
            md5=md5,
            sticky=info.flag("sticky"),
        ),
        signature=_key_text(info, "file_signature"),
        executable=info.flag("executable"),
    )


def _app_versions(
    root: Element, programs: dict[str, ProgramFile]
) -> tuple[AppVersion, ...]:
    """Return the programs of the apps; a version without files is none."""
    found = _few(root, "app_version", MOST_APP_VERSIONS)
    return tuple(
        _app_version(item, programs) for item in found if item.find("file_ref")
    )


def _app_version(item: Element, programs: dict[str, ProgramFile]) -> AppVersion:
    """Return one app version with its files."""
    refs = _few(item, "file_ref", MOST_PROGRAM_FILES)
    platform = item.string("platform")
    return AppVersion(
        app=check_name(item.string("app_name")),
        version_num=item.integer("version_num"),
        platform=check_name(platform) if platform else "",
        files=tuple(_referred(ref, programs) for ref in refs),
    )


def _referred(ref: Element, programs: dict[str, ProgramFile]) -> ProgramFile:
    """Return the file that an app version names, with its part in it."""
    open_name = ref.string("open_name")
    known = programs.get(ref.string("file_name"))
    if known is None:
        raise TrustError("STO-X030", "an app version names a file without signature")
    return ProgramFile(
        info=known.info,
        signature=known.signature,
        executable=known.executable,
        main=ref.flag("main_program"),
        open_name=check_name(open_name) if open_name else "",
    )


def _key_text(element: Element, tag: str) -> str:
    """Return a key's or signature's text, one spelling of its line ends; "" if none."""
    lines = element.string(tag, longest=KEY_CHARS).split("\n")
    text = "\n".join(line.strip() for line in lines)
    return f"{text}\n" if text else ""


def _preferences(root: Element, tag: str) -> str:
    """Return the elements inside `tag` as text, "" if there are none."""
    found = root.find(tag)
    text = "".join(map(render_xml, found.children)) if found is not None else ""
    if len(text) > PREFERENCES_CHARS:
        raise TrustError("STO-X030", f"<{tag}> is too large")
    return text


def _user(root: Element) -> UserInfo | None:
    """Return what is shown of the account, None where the reply does not say."""
    if root.find("user_name") is None and root.find("userid") is None:
        return None
    return UserInfo(
        id=root.integer("userid"),
        name=_shown(root, "user_name"),
        created_at=root.integer("user_create_time"),
        total_credit=root.number("user_total_credit"),
        host_total_credit=root.number("host_total_credit"),
        venue=_shown(root, "host_venue"),
    )


def _shown(root: Element, tag: str) -> str:
    """Return a text that is only shown, cut at its bound."""
    found = root.find(tag)
    return found.text[:SHOWN_CHARS] if found is not None else ""


def _upload(info: Element, master_url: str) -> UploadInfo:
    """Return one output file."""
    return UploadInfo(
        name=check_name(info.string("name")),
        url=same_origin(master_url, info.string("upload_url")),
        max_nbytes=info.integer("max_nbytes"),
    )


def _workunit(item: Element) -> WorkunitInfo:
    """Return one workunit."""
    return WorkunitInfo(
        name=check_name(item.string("name")),
        app=check_name(item.string("app_name")),
        fpops_est=item.number("rsc_fpops_est"),
        fpops_bound=item.number("rsc_fpops_bound"),
        files=tuple(
            FileRef(check_name(ref.string("file_name")), ref.string("open_name"))
            for ref in item.every("file_ref")
        ),
        memory_bound=item.number("rsc_memory_bound"),
        disk_bound=item.number("rsc_disk_bound"),
    )


def _result(item: Element) -> ResultInfo:
    """Return one copy."""
    ref = item.find("file_ref")
    if ref is None:
        raise TrustError("STO-X030", "a result names no output file")
    return ResultInfo(
        name=check_name(item.string("name")),
        workunit=check_name(item.string("wu_name")),
        deadline=item.integer("report_deadline"),
        upload=check_name(ref.string("file_name")),
    )


def _check_references(reply: SchedulerReply) -> None:
    """Raise unless every name that the reply uses is explained by it."""
    files = {info.name for info in reply.files}
    uploads = {info.name for info in reply.uploads}
    workunits = {item.name for item in reply.workunits}
    complete = all(
        result.workunit in workunits and result.upload in uploads
        for result in reply.results
    ) and all(ref.file_name in files for item in reply.workunits for ref in item.files)
    if not complete:
        raise TrustError("STO-X030", "the reply uses names that it does not explain")
