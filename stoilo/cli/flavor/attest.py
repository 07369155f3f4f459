"""`stoilo flavor attest`: a builder says, by his own key, what he built."""

from __future__ import annotations

import json
from pathlib import Path

import click

from stoilo.cli.keys import open_key_file, passphrase_option
from stoilo.core.errors import UsageError

_FOLDER = click.Path(path_type=Path, file_okay=False, exists=True)
_FILE = click.Path(path_type=Path, dir_okay=False)
EPOCH = 315532800


@click.command()
@click.argument("folder", type=_FOLDER, metavar="DIR")
@click.option("--key", required=True, type=_FILE, help="Your key, of role builder.")
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where builds/<part>/<platform>/<you>.json go: the ceremony's folder. Default: DIR.",
)
@click.option("--commit", default="", help="Commit of the source that you built, hex.")
@click.option(
    "--source-date-epoch",
    type=click.IntRange(min=0),
    default=EPOCH,
    show_default=True,
    help="The fixed time of the build, s since 1970.",
)
@passphrase_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def attest(
    folder: Path,
    key: Path,
    output: Path | None,
    commit: str,
    source_date_epoch: int,
    passphrase_fd: int | None,
    *,
    as_json: bool,
) -> None:
    """Sign that you built the parts in DIR yourself.

    DIR is the output of `stoilo flavor build` or `stoilo release build`, made on your own
    machine from the source: nothing else proves anything. Every file is compared with its
    record first. A release needs at least two builders who got the same bytes.

    Example: stoilo flavor attest build --key bea.builder.key --output /media/stick/ceremony
    """
    from stoilo.signer.attestations import (  # noqa: PLC0415 - an extra
        attestation_path,
        build_inputs,
        make_attestation,
    )
    from stoilo.signer.ceremony.built_parts import find_builds  # noqa: PLC0415 - an extra
    from stoilo.signer.key_files import write_private_file  # noqa: PLC0415 - an extra
    from stoilo.signer.offline_keys import BUILDER_ROLE  # noqa: PLC0415 - an extra

    builds = find_builds(folder)
    opened = open_key_file(key, passphrase_fd)
    if opened.role != BUILDER_ROLE:
        raise UsageError(
            "STO-U003",
            f"{key.name} is a {opened.role} key",
            hint="make a builder's: stoilo release keygen --role builder",
        )
    private, written = opened.ed25519(), []
    for build in builds:
        inputs = build_inputs(build.part, commit, source_date_epoch)
        path = (output or folder) / attestation_path(build.part, private.public)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_private_file(path, make_attestation(build.part, inputs, private))
        written.append((build.part, path))
    if as_json:
        rows = [
            {
                "part": part.part,
                "platform": part.platform,
                "sha256": part.archive.sha256,
                "file": str(path),
            }
            for part, path in written
        ]
        click.echo(json.dumps({"builder": opened.name, "attested": rows}))
        return
    for part, path in written:
        digest = part.archive.sha256[:16]
        click.echo(f"{part.part} for {part.platform} {digest}…  {path}")
    click.echo(
        "Next: another builder does the same, on another machine; then the ceremony."
    )
