"""`stoilo volunteer attach | run | detach`: the projects that this computer helps."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from urllib.parse import urlsplit

import click

from stoilo.cli.output import JSON, read_file, say
from stoilo.cli.volunteer.group import data_option, how_options
from stoilo.core.errors import UsageError
from stoilo.executor.volunteer.attachments import (
    AttachmentFile,
    Attachments,
    arguments_of,
    choose_means,
    fetch_root,
    greet_project,
    leave_project,
    look_up_account,
    make_account,
)
from stoilo.executor.volunteer.main import main
from stoilo.executor.volunteer.transfer import Transfer

_MAX_FILE_BYTES = 1024 * 1024
_MAX_KEY_BYTES = 4096
_MAX_SLOTS = 1024
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_GRACE_S = 75.0  # a task under a launcher may take 60 s to write its state down
_MODULE = "stoilo.executor.volunteer"


@click.command(short_help="Attach this computer to a project.")
@click.argument("url")
@click.option("--key", help="Account key, or @FILE: then it is in no process list.")
@click.option("--email", help="Ask the project for the key; the password is asked for.")
@click.option(
    "--new-account", is_flag=True, help="Make the account of --email at the project."
)
@click.option(
    "--fingerprint",
    help="SHA-256 of the project's root, which is then fetched; in place of --root.",
)
@how_options
@data_option
@JSON
def attach(  # noqa: PLR0917 - click passes options by name
    url: str,
    key: str | None,
    email: str | None,
    new_account: bool,
    fingerprint: str | None,
    root: Path | None,
    launcher: Path | None,
    project_programs: bool,
    trust_project_programs: bool,
    ca: Path | None,
    slots: int,
    max_level: str | None,
    opt_in: Path | None,
    data: Path,
    as_json: bool,
) -> None:
    """Attach this computer to the project at URL; `stoilo volunteer run` then helps it.

    A key comes from the project's pages, or by --email from its account service: the
    password is then asked for, or read from a pipe. Without either a person at a terminal
    is offered a new account. The project is called once with the key; nothing runs yet.
    """
    if root is not None and fingerprint is not None:
        raise UsageError("STO-U003", "say one of --root and --fingerprint")
    if key is None and email is None and sys.stdin.isatty():
        email, new_account = _offer_account(url), True
    if not 1 <= slots <= _MAX_SLOTS:
        raise UsageError("STO-U003", f"--slots is 1 to {_MAX_SLOTS}")
    said = AttachmentFile(
        project=_master_url(url),
        means=choose_means(
            root=root is not None or fingerprint is not None,
            launcher=launcher is not None,
            project_programs=project_programs,
            trust_project_programs=trust_project_programs,
        ),
        launcher=str(launcher.resolve()) if launcher else "",
        slots=slots,
        max_level=max_level or "",
        opt_in=str(opt_in.resolve()) if opt_in else "",
    )
    if email is not None or trust_project_programs:
        _check_private(said.project)
    root_bytes, ca_bytes = _read(root), _read(ca)
    transfer = Transfer(said.project, ca=ca)
    try:
        transfer.scheduler_url()  # a wrong address shows here, not in a log later
        if fingerprint is not None:  # before any password leaves
            root_bytes = fetch_root(transfer, fingerprint)
        account = _account_key(transfer, key, email, new=new_account)
    finally:
        transfer.close()
    attachments = Attachments(data)
    made = attachments.add(said, account, root=root_bytes, ca=ca_bytes)
    try:
        greet_project(made)
    except BaseException:
        attachments.remove(made)
        raise
    record = {"project": said.project, "directory": str(made.directory)}
    text = f"attached to {said.project}; next: stoilo volunteer run"
    say(record, text, as_json=as_json)


@click.command(short_help="Detach from a project and forget it.")
@click.argument("url")
@click.option(
    "--abort-tasks", is_flag=True, help="Give unfinished tasks back to the project."
)
@data_option
@JSON
def detach(url: str, abort_tasks: bool, data: Path, *, as_json: bool) -> None:
    """Detach from the project at URL: forget its key, files and memory here.

    Unfinished tasks are in the way unless --abort-tasks gives them back: the project
    hears of it if it can be reached, else it waits for their deadlines.
    """
    attachments = Attachments(data)
    attachment = attachments.find(url)
    told = leave_project(attachment, abort_tasks=abort_tasks)
    attachments.remove(attachment)
    late = "" if told else "; it could not be told and waits for the deadlines"
    record = {"project": attachment.said.project, "told": told}
    say(record, f"detached from {attachment.said.project}{late}", as_json=as_json)


@click.command(short_help="Help every attached project, or one.")
@click.argument("url", required=False)
@data_option
@click.option("--verbose", is_flag=True, help="Say more on stderr.")
def run(url: str | None, data: Path, *, verbose: bool) -> int:
    """Fetch tasks, verify and run them, for every attached project or the one at URL.

    Stops on Ctrl-C or SIGTERM; what is not finished goes on at the next start. Each project
    has a process of its own: one that fails ends alone.
    """
    attachments = Attachments(data)
    chosen = [attachments.find(url)] if url else attachments.every()
    if not chosen:
        raise UsageError(
            "STO-X045",
            "this computer is attached to no project",
            hint="stoilo volunteer attach URL --fingerprint HEX, as the project's page says",
        )
    more = ["--verbose"] if verbose else []
    every = [[*arguments_of(one), *more] for one in chosen]
    return main(every[0]) if len(every) == 1 else _run_all(every)


def _run_all(every: list[list[str]]) -> int:
    """Run several volunteers; returns the worst of their exit codes."""
    command = [sys.executable, "-m", _MODULE, "--exit-with-parent"]
    children = [subprocess.Popen([*command, *words]) for words in every]

    def stop(_sign: int, _frame: FrameType | None) -> None:
        for child in children:
            child.terminate()

    for sign in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sign, stop)
    try:
        return max(_wait(child) for child in children)
    finally:
        _end(children)


def _wait(child: subprocess.Popen[bytes]) -> int:
    return code if (code := child.wait()) >= 0 else 1


def _end(children: list[subprocess.Popen[bytes]]) -> None:
    limit = time.monotonic() + _GRACE_S
    for child in children:
        child.terminate()
    for child in children:
        try:
            child.wait(max(0.0, limit - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _master_url(url: str) -> str:
    """Return a master URL in its one spelling; raises ``STO-U003``."""
    if not url.startswith(("http://", "https://")) or not url.isascii():
        raise UsageError(
            "STO-U003", "the project's URL begins with http:// or https://"
        )
    return url if url.endswith("/") else f"{url}/"


def _offer_account(url: str) -> str:
    """Return the address of the account to be made, asked for at the terminal."""
    click.echo(
        f"An account at {url} counts what your computers do. It needs an e-mail address\n"
        "and a password of its own. (You have one? Ctrl-C, then --email or --key @FILE.)",
        err=True,
    )
    return str(click.prompt("E-mail of the new account", err=True))


def _account_key(
    transfer: Transfer, key: str | None, email: str | None, *, new: bool
) -> str:
    """Return the account key: as said, from its file, or from the project."""
    if (key is None) == (email is None) or (new and email is None):
        raise UsageError("STO-U003", "say one of --key and --email")
    if email is not None:
        ask = make_account if new else look_up_account
        return ask(transfer, email, _password(twice=new))
    assert key is not None  # noqa: S101 - one of the two is there
    if key.startswith("@"):
        key = _read(Path(key[1:]), _MAX_KEY_BYTES).decode("ascii", "replace")
    return key.strip()


def _check_private(project: str) -> None:
    """Raise ``STO-U003`` where a password, or a program to be started, travels in clear."""
    address = urlsplit(project)
    if address.scheme != "https" and address.hostname not in _LOOPBACK:
        raise UsageError(
            "STO-U003",
            "accounts are looked up, and programs trusted, over https only, except on "
            "this computer",
            hint="ask the project for its https address; or give --key, and --root",
        )


def _password(*, twice: bool) -> str:
    if sys.stdin.isatty():
        return str(
            click.prompt(
                "Password", hide_input=True, err=True, confirmation_prompt=twice
            )
        )
    return sys.stdin.readline(_MAX_KEY_BYTES).rstrip("\r\n")


def _read(path: Path | None, most: int = _MAX_FILE_BYTES) -> bytes:
    """Return a file named on the command line, b"" for none; raises ``STO-U004``."""
    if path is None:
        return b""
    data = read_file(path, most)
    if not data:
        raise UsageError("STO-U004", f"{path} is empty")
    return data
