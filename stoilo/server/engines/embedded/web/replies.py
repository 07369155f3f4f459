"""What the project answers, rendered: scheduler replies, uploads, accounts, pages.

The shape of a reply is that of reference/boinc.md §3.4, what a 7.20.5 client accepts:
entities before those who name them. Leaving out ``max_nbytes`` or ``report_deadline`` would
mean 0 to it, leaving out ``api_version`` an old runtime interface without shared memory, so
that none of them is ever left out.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING

from stoilo.core.boinc.xml import element, escape, leaf
from stoilo.server.engines.embedded.accounts.passwords import MIN_CHARS
from stoilo.server.engines.programs import API_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from stoilo.core.boinc.messages import (
        AppVersion,
        FileInfo,
        ProgramFile,
        ResultInfo,
        SchedulerReply,
        WorkunitInfo,
    )


def render_reply(reply: SchedulerReply, project: str) -> bytes:
    """Return a reply's XML."""
    apps = sorted({item.app for item in reply.workunits})
    lines = [
        "<scheduler_reply>",
        *_greeting(reply, project),
        *_kept(reply),
        *(
            element("app", name=name, user_friendly_name=f"stoilo {name}")
            for name in apps
        ),
        *_app_versions(reply.app_versions),
        *map(_file, reply.files),
        *map(_workunit, reply.workunits),
        *(
            element(
                "file_info",
                name=one.name,
                max_nbytes=one.max_nbytes,
                upload_url=one.url,
            )
            for one in reply.uploads
        ),
        *_results(reply),
        *_orders(reply),
        "<verify_files_on_app_start/>",
        "</scheduler_reply>",
        "",
    ]
    return "\n".join(lines).encode()


def _greeting(reply: SchedulerReply, project: str) -> Iterable[str]:
    yield leaf("project_name", project)
    if reply.host_id:
        yield leaf("hostid", reply.host_id)
    if reply.user is not None:
        yield leaf("userid", reply.user.id)
        yield leaf("user_name", reply.user.name)
        yield leaf("user_create_time", reply.user.created_at)
        yield leaf("user_total_credit", f"{reply.user.total_credit:.6f}")
        yield leaf("host_total_credit", f"{reply.user.host_total_credit:.6f}")
    for text in reply.messages:
        yield f'<message priority="notice">{escape(text)}</message>'
    flags = {
        "project_is_down": reply.down,
        "stoilo_bad_key": reply.bad_key,
        "stoilo_waits": reply.waits,
    }
    yield from (f"<{tag}/>" for tag, is_set in flags.items() if is_set)


def _kept(reply: SchedulerReply) -> list[str]:
    """Return what a client keeps: lines of their own, as BOINC reads them.

    Preferences are XML of our own, or checked when it came in.
    """
    texts = {
        "project_preferences": reply.project_preferences,
        "global_preferences": reply.global_preferences,
        "code_sign_key": escape(reply.code_sign_key),
        "code_sign_key_signature": escape(reply.code_sign_key_signature),
    }
    return [_block(tag, text) for tag, text in texts.items() if text]


def _block(tag: str, text: str) -> str:
    return f"<{tag}>\n{text.strip()}\n</{tag}>"


def _app_versions(versions: Sequence[AppVersion]) -> list[str]:
    """Return the programs' files, each once, then the app versions."""
    files = {file.info.name: file for one in versions for file in one.files}
    return [_program_file(file) for file in files.values()] + [
        element(
            "app_version",
            *map(_program_ref, one.files),
            app_name=one.app,
            version_num=one.version_num,
            platform=one.platform,
            api_version=API_VERSION,
        )
        for one in versions
    ]


def _program_ref(file: ProgramFile) -> str:
    open_name = {"open_name": file.open_name} if file.open_name else {}
    main = "<main_program/>" if file.main else ""
    return element("file_ref", main, file_name=file.info.name, **open_name)


def _program_file(file: ProgramFile) -> str:
    executable = "<executable/>" if file.executable else ""
    return _file(
        file.info, executable, _block("file_signature", escape(file.signature))
    )


def _file(info: FileInfo, *more: str) -> str:
    urls = (leaf("url", url) for url in (*info.mirrors, info.url))
    sticky = "<sticky/>" if info.sticky else ""
    size = {"nbytes": info.nbytes, "md5_cksum": info.md5}
    if info.content:  # only who asked for it reads it, and checks it like a download
        more = (*more, leaf("stoilo_content", b64encode(info.content).decode()))
    return element("file_info", *urls, *more, sticky, name=info.name, **size)


def _workunit(item: WorkunitInfo) -> str:
    """Return one workunit; data go by file, so the command line is empty."""
    refs = (
        element("file_ref", file_name=ref.file_name, open_name=ref.open_name)
        for ref in item.files
    )
    bounds = {"rsc_memory_bound": item.memory_bound, "rsc_disk_bound": item.disk_bound}
    return element(
        "workunit",
        *refs,
        name=item.name,
        app_name=item.app,
        rsc_fpops_est=item.fpops_est,
        rsc_fpops_bound=item.fpops_bound,
        **{tag: value for tag, value in bounds.items() if value},
        command_line="",
    )


def _results(reply: SchedulerReply) -> list[str]:
    """Return the results, each with the app version that it shall run.

    Without platform and number a client takes its own platform.
    """
    apps = {item.name: item.app for item in reply.workunits}
    programs = {
        one.app: {"platform": one.platform, "version_num": one.version_num}
        for one in reply.app_versions
    }
    return [
        _result(item, programs.get(apps.get(item.workunit, ""), {}))
        for item in reply.results
    ]


def _result(item: ResultInfo, program: dict[str, object]) -> str:
    return element(
        "result",
        "<report_immediately/>",
        element("file_ref", file_name=item.upload, open_name="result"),
        name=item.name,
        wu_name=item.workunit,
        **program,
        report_deadline=item.deadline,
    )


def _orders(reply: SchedulerReply) -> Iterable[str]:
    """Yield acknowledgements, what to drop, and when to call again."""
    named = {
        "result_ack": reply.acks,
        "result_abort": reply.aborts,
        "result_abort_if_not_started": reply.aborts_unstarted,
    }
    for tag, names in named.items():
        yield from (element(tag, name=name) for name in names)
    yield from (leaf("delete_file_info", name) for name in reply.delete_files)
    if reply.request_delay:
        yield leaf("request_delay", f"{reply.request_delay:.3f}")
    if reply.next_rpc_delay:
        yield leaf("next_rpc_delay", f"{reply.next_rpc_delay:.3f}")


def render_upload_reply(
    status: int, *, size: int | None = None, why: str = ""
) -> bytes:
    """Return an upload's answer: 0 ok, 1 try again, -1 never."""
    lines = ["<data_server_reply>", leaf("status", status)]
    if size is not None:
        lines += [leaf("file_size", size), leaf("takes_sha256", 1)]
    if why:
        lines.append(leaf("message", why))
    return "\n".join([*lines, "</data_server_reply>", ""]).encode()


def render_config(
    project: str,  # its name
    master_url: str,  # with final slash
    platforms: Sequence[str] = (),  # BOINC's names of those with a program
) -> bytes:
    """Return what `get_project_config` answers: what a manager asks before it attaches."""
    offered = (
        element("platform", platform_name=name, user_friendly_name=name)
        for name in platforms
    )
    return element(
        "project_config",
        element("platforms", *offered),
        name=project,
        master_url=master_url,
        web_rpc_url_base=master_url,
        min_passwd_length=MIN_CHARS,
        sched_stopped=0,
        web_stopped=0,
    ).encode()


def render_account(key: str) -> bytes:
    """Return the answer to a successful account call."""
    return f"{element('account_out', authenticator=key)}\n".encode()


def render_account_error(number: int, message: str) -> bytes:
    """Return the answer to a failed account call (BOINC's error numbers)."""
    return f"{element('error', error_num=number, error_msg=message)}\n".encode()
