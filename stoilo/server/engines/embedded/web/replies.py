"""A scheduler reply, rendered: entities before those who name them.

The shape is that of reference/boinc.md §3.4: what a 7.20.5 client accepts. Leaving out
``max_nbytes`` or ``report_deadline`` would mean 0 to it, leaving out ``api_version`` an old
runtime interface, so that none of them is ever left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stoilo.core.boinc.xml import escape
from stoilo.server.engines.embedded.accounts.accounts import MIN_CHARS

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
    return f"<{tag}>{leaf('name', name)}</{tag}>"


def leaf(tag: str, value: object) -> str:
    """Return one leaf element."""
    return f"<{tag}>{escape(str(value))}</{tag}>"


def _apps(reply: SchedulerReply) -> list[str]:
    names = sorted({item.app for item in reply.workunits})
    return [
        f"<app>{leaf('name', name)}{leaf('user_friendly_name', f'stoilo {name}')}</app>"
        for name in names
    ]


def _key(reply: SchedulerReply) -> list[str]:
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
    open_name = leaf("open_name", file.open_name) if file.open_name else ""
    main = "<main_program/>" if file.main else ""
    return f"<file_ref>{leaf('file_name', file.info.name)}{open_name}{main}</file_ref>"


def _program_file(file: ProgramFile) -> str:
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
    sticky = "<sticky/>" if info.sticky else ""
    return (
        f"<file_info>{leaf('name', info.name)}"
        f"{''.join(leaf('url', url) for url in (*info.mirrors, info.url))}"
        f"{leaf('nbytes', info.nbytes)}{leaf('md5_cksum', info.md5)}{sticky}"
        "</file_info>"
    )


def _upload(info: UploadInfo) -> str:
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


@dataclass(frozen=True, slots=True)
class ProjectConfig:
    """What a manager asks before it attaches."""

    name: str  # of the project
    master_url: str  # with final slash
    platforms: tuple[str, ...] = ()  # BOINC's names of those with a program
    account_creation: bool = True  # whether accounts can be made over the web


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


def render_master_page(
    project: str,  # its name
    scheduler: str,  # URL of the scheduler
    pages: str = "",  # where people read the audit log, empty when there are no pages
) -> bytes:
    """Return the project's front page; the link has a line of its own."""
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
