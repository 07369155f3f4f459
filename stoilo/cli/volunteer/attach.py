"""`stoilo volunteer attach | detach`: which projects this computer helps."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

import click
import platformdirs

from stoilo.core.errors import UsageError

if TYPE_CHECKING:
    from stoilo.executor.volunteer.attachments import Attachments, Means
    from stoilo.executor.volunteer.transfer import Transfer


_FILE = click.Path(path_type=Path, dir_okay=False)
_MAX_FILE_BYTES = 1024 * 1024
_MAX_KEY_BYTES = 4096
_MAX_SLOTS = 1024
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})

data_option = click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    default=lambda: platformdirs.user_state_path("stoilo") / "volunteer",
    show_default="your state directory",
    help="Where the attachments lie.",
)


_Command = TypeVar("_Command", bound=Callable[..., object])
_HOW = (
    click.option("--root", type=_FILE, help="The project's TUF root, a file."),
    click.option(
        "--launcher",
        type=_FILE,
        help="Run tasks under this launcher, by its frozen programs, as BOINC would.",
    ),
    click.option(
        "--project-programs",
        is_flag=True,
        help="Fetch launcher and verifier from the project; --root says which are its own.",
    ),
    click.option(
        "--trust-project-programs",
        is_flag=True,
        help="The same without --root: whatever the project sends first is started.",
    ),
    click.option("--ca", type=_FILE, help="CA certificate of the project's server."),
    click.option(
        "--slots",
        type=int,
        default=1,
        show_default=True,
        help="Tasks at the same time.",
    ),
    click.option("--max-level", help="Only lowers what the opt-in says."),
    click.option(
        "--opt-in",
        type=_FILE,
        help="One more opt-in file; all files must allow a task.",
    ),
)


def how_options(command: _Command) -> _Command:
    """Add the options that say by what, and how much, tasks run here."""
    for option in reversed(_HOW):
        command = option(command)
    return command


@click.command(short_help="Attach this computer to a project.")
@click.argument("url")
@click.option("--key", help="Account key, or @FILE: then it is in no process list.")
@click.option("--email", help="Ask the project for the key; the password is asked for.")
@how_options
@data_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def attach(  # noqa: PLR0917 - click passes options by name
    url: str,
    key: str | None,
    email: str | None,
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
    password is then asked for, or read from a pipe. Nothing runs yet.
    """
    from stoilo.executor.volunteer.attachments import AttachmentFile, Attachments  # noqa: PLC0415 - an extra
    from stoilo.executor.volunteer.transfer import Transfer  # noqa: PLC0415 - an extra

    if not 1 <= slots <= _MAX_SLOTS:
        raise UsageError("STO-U003", f"--slots is 1 to {_MAX_SLOTS}")
    said = AttachmentFile(
        project=_master_url(url),
        means=_means(root, launcher, project_programs, trust_project_programs),
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
        account = _account_key(transfer, key, email)
    finally:
        transfer.close()
    made = Attachments(data).add(said, account, root=root_bytes, ca=ca_bytes)
    if as_json:
        click.echo(
            json.dumps({"project": said.project, "directory": str(made.directory)})
        )
    else:
        click.echo(f"attached to {said.project}; next: stoilo volunteer run")


@click.command(short_help="Detach from a project and forget it.")
@click.argument("url")
@click.option(
    "--abort-tasks", is_flag=True, help="Give unfinished tasks back to the project."
)
@data_option
def detach(url: str, abort_tasks: bool, data: Path) -> None:
    """Detach from the project at URL: forget its key, files and memory here.

    Unfinished tasks are in the way unless --abort-tasks gives them back: the project
    hears of it if it can be reached, else it waits for their deadlines.
    """
    from stoilo.executor.volunteer.attachments import leave_project  # noqa: PLC0415 - an extra

    attachments = attachments_at(data)
    attachment = attachments.find(url)
    told = leave_project(attachment, abort_tasks=abort_tasks)
    attachments.remove(attachment)
    click.echo(
        f"detached from {attachment.said.project}"
        + ("" if told else "; it could not be told and waits for the deadlines")
    )


def attachments_at(data: Path) -> Attachments:
    """Return the attachments below `data`."""
    from stoilo.executor.volunteer.attachments import Attachments  # noqa: PLC0415 - an extra

    return Attachments(data)


def _master_url(url: str) -> str:
    """Return a master URL in its one spelling; raises ``STO-U003``."""
    if not url.startswith(("http://", "https://")) or not url.isascii():
        raise UsageError(
            "STO-U003", "the project's URL begins with http:// or https://"
        )
    return url if url.endswith("/") else f"{url}/"


def _means(
    root: Path | None, launcher: Path | None, released: bool, trusted: bool
) -> Means:
    """Return by what tasks shall run; raises ``STO-U003``."""
    from stoilo.executor.volunteer.attachments import choose_means  # noqa: PLC0415 - an extra

    return choose_means(
        root=root is not None,
        launcher=launcher is not None,
        project_programs=released,
        trust_project_programs=trusted,
    )


def _account_key(transfer: Transfer, key: str | None, email: str | None) -> str:
    """Return the account key: as said, from its file, or from the project."""
    if (key is None) == (email is None):
        raise UsageError("STO-U003", "say one of --key and --email")
    if email is not None:
        from stoilo.executor.volunteer.attachments import look_up_account  # noqa: PLC0415 - an extra

        return look_up_account(transfer, email, _password())
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


def _password() -> str:
    if sys.stdin.isatty():
        return str(click.prompt("Password", hide_input=True, err=True))
    return sys.stdin.readline(_MAX_KEY_BYTES).rstrip("\r\n")


def _read(path: Path | None, most: int = _MAX_FILE_BYTES) -> bytes:
    """Return a file named on the command line, b"" for none; raises ``STO-U004``."""
    if path is None:
        return b""
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise UsageError("STO-U004", f"{path.name} cannot be read") from error
    if not data or len(data) > most:
        raise UsageError("STO-U004", f"{path.name} is empty or too large")
    return data
