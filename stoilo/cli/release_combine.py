"""`stoilo release combine`: the signatures of several copies, brought together."""

from __future__ import annotations

from pathlib import Path

import click

from stoilo.cli.ceremony import (
    FOLDER,
    clock,
    json_option,
    print_review,
    refuse_present,
    save,
)

__all__ = ["combine"]


@click.command()
@click.argument("out", type=FOLDER)
@click.argument("folders", type=FOLDER, nargs=-1, required=True)
@json_option
def combine(out: Path, folders: tuple[Path, ...], *, as_json: bool) -> None:
    """Bring the signatures in copies of one ceremony together in OUT.

    The order of FOLDERS does not matter; copies of different proposals are refused.
    """
    from stoilo.signer.ceremony.combining import (  # noqa: PLC0415 - loads tuf
        combine as unite,
    )
    from stoilo.signer.ceremony.folder import read_folder  # noqa: PLC0415 - as above
    from stoilo.signer.ceremony.review import review  # noqa: PLC0415 - as above

    refuse_present(out)
    together = unite([read_folder(folder) for folder in folders])
    save(out, together, "combine", f"{len(folders)} copies")
    print_review(review(together, clock()), out, as_json=as_json)
