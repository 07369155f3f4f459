"""Run the examples' notebooks and keep what they printed (`make notebooks`).

A notebook runs in a kernel of its own, in its folder. With a connection file, its cell
``conn = None`` becomes a connection to that project.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).resolve().parents[1] / "examples" / "notebooks"
CELL_S = 300
HERE = "conn = None"


def execute(path: Path, connection: Path | None = None) -> nbformat.NotebookNode:
    """Return the notebook with the outputs of a fresh run.

    Raises:
        CellExecutionError: a cell raised: a claim did not hold, among others.
    """
    notebook = nbformat.read(path, as_version=4)
    if connection is not None:
        connect(notebook, connection)
    resources = {"metadata": {"path": str(path.parent)}}
    client = NotebookClient(notebook, timeout=CELL_S, resources=resources)
    with tempfile.TemporaryDirectory(prefix="nb-") as folder:
        kernel = client.create_kernel_manager()
        kernel.transport, kernel.ip = "ipc", f"{folder}/kernel"  # no port is opened
        kernel.connection_file = f"{folder}/kernel.json"
        client.execute(env=os.environ | places(folder))
    return notebook


def places(folder: str) -> dict[str, str]:
    """Return the variables that keep a kernel's own files below `folder`."""
    names = ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "TORCHINDUCTOR_CACHE_DIR")
    return {"OMP_NUM_THREADS": "1", "XDG_STATE_HOME": folder} | dict.fromkeys(
        names, folder
    )


def connect(notebook: nbformat.NotebookNode, connection: Path) -> None:
    """Have the notebook use a project's volunteers."""
    (cell,) = (one for one in notebook.cells if one.source.startswith(HERE))
    source = f"import stoilo\n\nconn = await stoilo.connect({str(connection)!r})"
    cell.source = cell.source.replace(HERE, source, 1)


def tidy(notebook: nbformat.NotebookNode) -> None:
    """Take away what differs from run to run and from machine to machine."""
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
    notebook.metadata["language_info"] = {"name": "python"}


def main() -> None:
    """Run the named notebooks, or all, and write them with their outputs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "names", nargs="*", help="without .ipynb; all when none is given"
    )
    names = parser.parse_args().names
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        if names and path.stem not in names:
            continue
        sys.stderr.write(f"{path.name}\n")
        notebook = execute(path)
        tidy(notebook)
        nbformat.write(notebook, path)


if __name__ == "__main__":
    main()
