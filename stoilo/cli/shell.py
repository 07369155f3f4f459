"""`stoilo completion` and `stoilo man`, and what options and arguments complete to.

What is completed is looked up on this machine alone: nothing is asked of a server while
somebody presses a key.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from stoilo.cli.output import FOLDER, cannot_write
from stoilo.core.errors import UsageError

_LINES = {
    "bash": ('eval "$(_STOILO_COMPLETE=bash_source stoilo)"', "~/.bashrc"),
    "zsh": ('eval "$(_STOILO_COMPLETE=zsh_source stoilo)"', "~/.zshrc"),
    "fish": (
        "_STOILO_COMPLETE=fish_source stoilo | source",
        "~/.config/fish/config.fish",
    ),
}
_RECENT = 20  # tasks


def _matching(named: Iterator[tuple[str, str]], begun: str) -> list[CompletionItem]:
    return [
        CompletionItem(name, help=said)
        for name, said in named
        if name.startswith(begun)
    ]


def complete_level(
    _: click.Context, __: click.Parameter, begun: str
) -> list[CompletionItem]:
    """Return the shipped levels."""
    from stoilo.core.levels import load_levels  # noqa: PLC0415 - only when a key is pressed

    return _matching(((one.name, one.summary) for one in load_levels()), begun)


def complete_flavor(
    _: click.Context, __: click.Parameter, begun: str
) -> list[CompletionItem]:
    """Return the shipped flavors."""
    from stoilo.flavors.manifest import shipped_flavors  # noqa: PLC0415 - the same

    return _matching(((one.name, one.alias) for one in shipped_flavors()), begun)


def complete_code(
    _: click.Context, __: click.Parameter, begun: str
) -> list[CompletionItem]:
    """Return codes; files once it is clear that none is begun."""
    from stoilo.core.codebook import load_codebook  # noqa: PLC0415 - the same

    if begun and not "STO-".startswith(begun.upper()[:4]):
        return [CompletionItem(begun, type="file")]
    book = ((code, entry.title) for code, entry in load_codebook().items())
    return _matching(book, begun.upper())


def complete_task(
    _: click.Context, __: click.Parameter, begun: str
) -> list[CompletionItem]:
    """Return the tasks that were sent from here last."""
    from stoilo.client.session import default_journal  # noqa: PLC0415 - brings gRPC

    recent = default_journal().read(_RECENT)
    return _matching(((one.task_id, one.label) for one in recent), begun)


LEVEL = click.option(
    "--level",
    default="pure",
    show_default=True,
    help="Policy level.",
    shell_complete=complete_level,
)


@click.command()
@click.argument("shell", type=click.Choice(list(_LINES)), required=False)
def completion(shell: str | None) -> None:
    """Print the line that makes a SHELL complete stoilo's commands; default: yours.

    Commands, options, levels, flavors, codes and the tasks you sent last are completed.

    Example: stoilo completion bash >> ~/.bashrc
    """
    named = shell or Path(os.environ.get("SHELL", "")).name
    if named not in _LINES:
        raise UsageError(
            "STO-U003", "which shell is it?", hint="stoilo completion bash|zsh|fish"
        )
    line, file = _LINES[named]
    click.echo(line)
    click.echo(f"run this, or add it to {file}", err=True)


@click.command()
@click.argument("words", metavar="[COMMAND]...", nargs=-1)
@click.option(
    "--all", "folder", type=FOLDER, help="Write every command's page into DIR."
)
@click.pass_context
def man(context: click.Context, words: tuple[str, ...], folder: Path | None) -> None:
    """Print the manual page of a COMMAND, made from the command itself.

    Example: stoilo man task submit | man -l -
    Example: stoilo man --all ~/.local/share/man/man1, then: man stoilo-task-submit
    """
    top = context.find_root().command
    root = click.Context(top, info_name="stoilo", **top.context_settings)
    if folder is None:
        click.echo(render_page(_find(root, words)), nl=False)
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for one in _walk(root):
            name = one.command_path.replace(" ", "-")
            (folder / f"{name}.1").write_text(render_page(one), encoding="utf-8")
    except OSError as error:
        raise cannot_write(folder, error) from error


def _inner(context: click.Context) -> Iterator[click.Context]:
    """Yield a group's commands as contexts of their own; none of a command."""
    group = context.command
    if isinstance(group, click.Group):
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            if command is not None:
                yield click.Context(command, parent=context, info_name=name)


def _walk(context: click.Context) -> Iterator[click.Context]:
    yield context
    for one in _inner(context):
        yield from _walk(one)


def _find(context: click.Context, words: tuple[str, ...]) -> click.Context:
    for word in words:
        group = context.command
        command = (
            group.get_command(context, word) if isinstance(group, click.Group) else None
        )
        if command is None:
            raise UsageError("STO-U003", f"no such command: {' '.join(words)}")
        context = click.Context(command, parent=context, info_name=word)
    return context


def render_page(context: click.Context) -> str:
    """Return one command's page as roff (man(7))."""
    command = context.command
    name = context.command_path.replace(" ", "-")
    text = re.sub("\n*\b\n", "\n\n", command.help or "")
    summary = command.get_short_help_str(limit=200)
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    parts = [
        f'.TH "{name.upper()}" 1',
        f".SH NAME\n{_roff(name)} \\- {_roff(summary)}",
        f".SH SYNOPSIS\n{_roff(usage)}",
        ".SH DESCRIPTION",
        *(f".PP\n{_roff(one)}" for one in text.split("\n\n")),
        ".SH OPTIONS",
        *_rows(one.get_help_record(context) for one in command.get_params(context)),
    ]
    if inner := [*_inner(context)]:
        parts += [".SH COMMANDS"]
        parts += _rows(
            (one.command_path, one.command.get_short_help_str(limit=200))
            for one in inner
        )
    return "\n".join(parts) + "\n"


def _rows(records: Iterator[tuple[str, str] | None]) -> list[str]:
    return [f".TP\n.B {_roff(row[0])}\n{_roff(row[1])}" for row in records if row]


def _roff(text: str) -> str:
    """Return text of which roff takes nothing for its own."""
    lines = (
        line.strip()
        for line in text.replace("\\", "\\e").replace("-", "\\-").split("\n")
    )
    return "\n".join(f"\\&{line}" if line[:1] in {".", "'"} else line for line in lines)
