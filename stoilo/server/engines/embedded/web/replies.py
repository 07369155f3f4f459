"""A scheduler reply, rendered: entities before those who name them.

The shape is that of reference/boinc.md §3.4: what a 7.20.5 client accepts. Leaving out
``max_nbytes`` or ``report_deadline`` would mean 0 to it, leaving out ``api_version`` an old
runtime interface, so that none of them is ever left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoilo.core.boinc.xml import escape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stoilo.core.boinc.messages import (
        AppVersion,
        FileInfo,
        ProgramFile,
        ResultInfo,
        SchedulerReply,
        UploadInfo,
        UserInfo,
        WorkunitInfo,
    )

__all__ = ["leaf", "render_reply"]

API_VERSION = "7.20.5"


def render_reply(reply: SchedulerReply, project: str) -> bytes:
    """Return a reply's XML."""
    lines = [
        "<scheduler_reply>",
        *_greeting(reply, project),
        *_preferences(reply),
        *_key(reply),
        *_apps(reply),
        *_app_versions(reply.app_versions),
        *map(_file, reply.files),
        *map(_workunit, reply.workunits),
        *map(_upload, reply.uploads),
        *_results(reply),
        *_orders(reply),
        "<verify_files_on_app_start/>",
        "</scheduler_reply>",
        "",
    ]
    return "\n".join(lines).encode()


def _greeting(reply: SchedulerReply, project: str) -> list[str]:
    """Return who answers, whom, and what people should read."""
    lines = [leaf("project_name", project)]
    if reply.host_id:
        lines.append(leaf("hostid", reply.host_id))
    if reply.user is not None:
        lines += _user(reply.user)
    lines += [
        f'<message priority="notice">{escape(text)}</message>'
        for text in reply.messages
    ]
    flags = {
        "project_is_down": reply.down,
        "stoilo_bad_key": reply.bad_key,
        "stoilo_waits": reply.waits,
    }
    return lines + [f"<{tag}/>" for tag, is_set in flags.items() if is_set]


def _user(user: UserInfo) -> list[str]:
    """Return what the client shows of the account and the host."""
    fields = [
        ("userid", user.id),
        ("user_name", user.name),
        ("user_create_time", user.created_at),
        ("user_total_credit", f"{user.total_credit:.6f}"),
        ("host_total_credit", f"{user.host_total_credit:.6f}"),
        ("host_venue", user.venue),
    ]
    return [leaf(tag, value) for tag, value in fields]


def _preferences(reply: SchedulerReply) -> list[str]:
    """Return preferences: XML of our own, or checked when it came in."""
    texts = {
        "project_preferences": reply.project_preferences,
        "global_preferences": reply.global_preferences,
    }
    return [f"<{tag}>\n{text.strip()}\n</{tag}>" for tag, text in texts.items() if text]


def _orders(reply: SchedulerReply) -> list[str]:
    """Return acknowledgements, what to drop, and when to call again."""
    lines = [_named("result_ack", name) for name in reply.acks]
    lines += [_named("result_abort", name) for name in reply.aborts]
    lines += [
        _named("result_abort_if_not_started", name) for name in reply.aborts_unstarted
    ]
    lines += [leaf("delete_file_info", name) for name in reply.delete_files]
    if reply.request_delay:
        lines.append(leaf("request_delay", f"{reply.request_delay:.3f}"))
    if reply.next_rpc_delay:
        lines.append(leaf("next_rpc_delay", f"{reply.next_rpc_delay:.3f}"))
    return lines


def _named(tag: str, name: str) -> str:
    """Return an order about one result."""
    return f"<{tag}>{leaf('name', name)}</{tag}>"


def leaf(tag: str, value: object) -> str:
    """Return one leaf element."""
    return f"<{tag}>{escape(str(value))}</{tag}>"


def _apps(reply: SchedulerReply) -> list[str]:
    """Return the apps of the workunits: the levels."""
    names = sorted({item.app for item in reply.workunits})
    return [
        f"<app>{leaf('name', name)}{leaf('user_friendly_name', f'stoilo {name}')}</app>"
        for name in names
    ]


def _key(reply: SchedulerReply) -> list[str]:
    """Return the code-sign key, and the former one's signature over it."""
    lines = []
    if reply.code_sign_key:
        lines.append(_block("code_sign_key", reply.code_sign_key))
    if reply.code_sign_key_signature:
        lines.append(_block("code_sign_key_signature", reply.code_sign_key_signature))
    return lines


def _app_versions(versions: Sequence[AppVersion]) -> list[str]:
    """Return the programs' files, each once, then the app versions."""
    files = {file.info.name: file for one in versions for file in one.files}
    return [_program_file(file) for file in files.values()] + [
        _app_version(one) for one in versions
    ]


def _app_version(version: AppVersion) -> str:
    """Return one app version; without `api_version` a client shares no memory file."""
    refs = "".join(_program_ref(file) for file in version.files)
    return (
        f"<app_version>{leaf('app_name', version.app)}"
        f"{leaf('version_num', version.version_num)}"
        f"{leaf('platform', version.platform)}"
        f"{leaf('api_version', API_VERSION)}{refs}</app_version>"
    )


def _program_ref(file: ProgramFile) -> str:
    """Return how an app version names one of its files."""
    open_name = leaf("open_name", file.open_name) if file.open_name else ""
    main = "<main_program/>" if file.main else ""
    return f"<file_ref>{leaf('file_name', file.info.name)}{open_name}{main}</file_ref>"


def _program_file(file: ProgramFile) -> str:
    """Return one signed file."""
    executable = "<executable/>" if file.executable else ""
    return (
        f"<file_info>{leaf('name', file.info.name)}{leaf('url', file.info.url)}"
        f"{executable}{_block('file_signature', file.signature)}"
        f"{leaf('nbytes', file.info.nbytes)}{leaf('md5_cksum', file.info.md5)}"
        "</file_info>"
    )


def _block(tag: str, text: str) -> str:
    """Return a key or signature: lines of their own, as BOINC reads them."""
    return f"<{tag}>\n{escape(text.strip())}\n</{tag}>"


def _file(info: FileInfo) -> str:
    """Return one input file."""
    sticky = "<sticky/>" if info.sticky else ""
    return (
        f"<file_info>{leaf('name', info.name)}"
        f"{''.join(leaf('url', url) for url in (*info.mirrors, info.url))}"
        f"{leaf('nbytes', info.nbytes)}{leaf('md5_cksum', info.md5)}{sticky}"
        "</file_info>"
    )


def _upload(info: UploadInfo) -> str:
    """Return one output file."""
    return (
        f"<file_info>{leaf('name', info.name)}{leaf('max_nbytes', info.max_nbytes)}"
        f"{leaf('upload_url', info.url)}</file_info>"
    )


def _workunit(item: WorkunitInfo) -> str:
    """Return one workunit; data go by file, so the command line is empty."""
    refs = "".join(
        f"<file_ref>{leaf('file_name', ref.file_name)}"
        f"{leaf('open_name', ref.open_name)}</file_ref>"
        for ref in item.files
    )
    bounds = {"memory": item.memory_bound, "disk": item.disk_bound}
    said = "".join(
        leaf(f"rsc_{what}_bound", value) for what, value in bounds.items() if value
    )
    return (
        f"<workunit>{leaf('name', item.name)}{leaf('app_name', item.app)}"
        f"{leaf('rsc_fpops_est', item.fpops_est)}"
        f"{leaf('rsc_fpops_bound', item.fpops_bound)}{said}"
        f"<command_line></command_line>{refs}</workunit>"
    )


def _results(reply: SchedulerReply) -> list[str]:
    """Return the results, each with the app version that it shall run."""
    apps = {item.name: item.app for item in reply.workunits}
    versions = {version.app: version for version in reply.app_versions}
    return [
        _result(item, versions.get(apps.get(item.workunit, "")))
        for item in reply.results
    ]


def _result(item: ResultInfo, version: AppVersion | None) -> str:
    """Return one result; without platform and number a client takes its own platform."""
    program = ""
    if version is not None:
        program = leaf("platform", version.platform) + leaf(
            "version_num", version.version_num
        )
    return (
        f"<result>{leaf('name', item.name)}{leaf('wu_name', item.workunit)}{program}"
        f"{leaf('report_deadline', item.deadline)}<report_immediately/>"
        f"<file_ref>{leaf('file_name', item.upload)}"
        "<open_name>result</open_name></file_ref></result>"
    )
