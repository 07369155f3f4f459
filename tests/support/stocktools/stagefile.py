"""BOINC's ``stage_file_native``, played: ``[--copy] FILE`` into the download folder."""

from __future__ import annotations

import hashlib
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["main"]


def main(arguments: list[str], root: Path) -> int:
    """Run the tool in a project; returns its exit status."""
    source = root / next(one for one in arguments if not one.startswith("-"))
    name = hashlib.md5(source.name.encode(), usedforsecurity=False).hexdigest()
    target = root / "download" / f"{int(name[1:8], 16) % 1024:x}" / source.name
    target.parent.mkdir(exist_ok=True)
    if "--copy" in arguments:
        shutil.copyfile(source, target)
    else:
        source.replace(target)
    data = target.read_bytes()
    md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
    target.with_name(f"{target.name}.md5").write_text(f"{md5} {len(data)}\n")
    return 0
