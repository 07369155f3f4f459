"""Make a development root: ``python scripts/development_root.py DIRECTORY ORIGIN``.

For trying out builds only: its offline keys lie beside it, and it is marked.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from stoilo.executor.verifier.trust import installed_release
from stoilo.signer.development.root import create_development_root


def main() -> None:
    """Make the root; ``root.json`` in the directory is what a verifier is built for."""
    directory = Path(sys.argv[1])
    directory.mkdir(mode=0o700, parents=True)
    create_development_root(
        directory, sys.argv[2], int(time.time()), installed=installed_release()
    )


if __name__ == "__main__":
    main()
