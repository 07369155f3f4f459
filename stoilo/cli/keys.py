"""What commands with offline keys share: passphrases, key files, typing back.

A passphrase comes from the terminal or from an open descriptor, never from an argument or
the environment, where other processes can read it.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from stoilo.core.errors import TrustError, UsageError
from stoilo.core.files import read_bounded
from stoilo.signer.offline_keys import (
    OfflineKey,
    PublicKeyFile,
    check_typed_back,
    choose_groups,
    open_key,
    parse_public_file,
)

CommandT = TypeVar("CommandT", bound=Callable[..., Any])
TRIES: Final = 3
_MAX_PASSPHRASE_BYTES: Final = 8 * 1024
MAX_SMALL_BYTES: Final = 512 * 1024


def passphrase_option(command: CommandT) -> CommandT:
    """Add ``--passphrase-fd N`` to a command."""
    return click.option(
        "--passphrase-fd",
        type=click.IntRange(min=0),
        default=None,
        help="Read the passphrase from this open descriptor instead of the terminal.",
    )(command)


def ask_passphrase(descriptor: int | None, label: str, *, twice: bool = False) -> str:
    """Return a passphrase: the first line of `descriptor`, or what a person types.

    Args:
        descriptor: open for reading; None: ask on the terminal, hidden.
        label: whose key the person is asked for.
        twice: ask again and compare, for a new key.

    Raises:
        UsageError: STO-U003 when the descriptor gives nothing.
    """
    if descriptor is None:
        text: str = click.prompt(
            f"Passphrase for {label}",
            hide_input=True,
            confirmation_prompt=twice,
            err=True,
        )
        return text
    try:
        line = _read_line(descriptor)
        return line.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            "STO-U003",
            f"descriptor {descriptor} gives no passphrase",
            hint="open it for the command, for example `--passphrase-fd 3 3< FILE`",
        ) from error


def _read_line(descriptor: int) -> bytes:
    line = b""
    while len(line) < _MAX_PASSPHRASE_BYTES:
        byte = os.read(descriptor, 1)
        if byte in {b"", b"\n"}:
            return line
        line += byte
    raise OSError("the line has no end")


def open_key_file(path: Path, descriptor: int | None) -> OfflineKey:
    """Open the private key in `path`, asking for its passphrase.

    On a terminal a mistyped passphrase may be typed again.

    Raises:
        TrustError: STO-K070 or STO-K071.
        UsageError: STO-U004 when the file cannot be read.
    """
    data = read_small(path)
    for left in reversed(range(1 if descriptor is not None else TRIES)):
        passphrase = ask_passphrase(descriptor, path.name)
        try:
            return open_key(data, passphrase)
        except TrustError as error:
            if error.code != "STO-K071" or not left:
                raise
            click.echo(f"{error.message}; try again", err=True)
    raise AssertionError("the loop ends by returning or raising")


def read_public_file(path: Path) -> PublicKeyFile:
    """Return the public key file at `path`; raises ``STO-K070``, ``STO-U004``."""
    return parse_public_file(read_small(path))


def confirm_fingerprint(public: PublicKeyFile) -> None:
    """Show a fingerprint and have two of its groups typed back; raises as `type_back`."""
    click.echo(f"Fingerprint of {public.role} key {public.name}:\n", err=True)
    click.echo(f"  {public.fingerprint}\n", err=True)
    type_back(public.fingerprint, "Write it on paper. Then, from the paper:")


def type_back(shown: str, question: str) -> None:
    """Have two groups of a digest typed, which nobody knew beforehand.

    A forged one that shares the first digits can be had by trying; one that shares all of
    them cannot. Raises ``STO-K069`` after three wrong answers.
    """
    for left in reversed(range(TRIES)):
        click.echo(question, err=True)
        typed = {
            number: str(click.prompt(f"  group {number} (of 16)", err=True))
            for number in choose_groups(secrets.randbelow)
        }
        try:
            check_typed_back(shown, typed)
        except TrustError as error:
            if not left:
                raise
            click.echo(f"{error.message}; look again", err=True)
        else:
            return


def read_small(path: Path) -> bytes:
    """Return a small file's bytes; raises ``STO-U004``."""
    try:
        return read_bounded(path, MAX_SMALL_BYTES)
    except OSError as error:
        raise UsageError(
            "STO-U004", f"{path} cannot be read: {os.strerror(error.errno or 0)}"
        ) from error
