"""What a frozen part is made of, as a CycloneDX 1.6 bill of materials.

Three kinds of components: the Python packages of the lock (with the digest of each wheel),
CPython itself, and the shared libraries that came from the build host (with the digest of
the file as it lies in the tree, and the Debian package that it belongs to). The text holds
no time, no serial number and no path of the build host, so that two builders get the same.
Source: CycloneDX 1.6 JSON.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path
from typing import Any
from urllib.parse import quote

from stoilo.core.digests import Digest
from stoilo.core.frozen_tree import Tree
from stoilo.flavors.lock import Lock, LockedWheel, normal_name

_METADATA_BYTES = 1 << 20
_PACKAGE = re.compile(r"([a-z0-9][a-z0-9+.-]+)(?::[a-z0-9]+)?: /")


@dataclass(frozen=True, slots=True)
class HostLibrary:
    """One shared library of the build host inside a tree."""

    path: str  # where it lies in the tree, without `_internal/`; its name is the soname
    digest: Digest  # SHA-256 of the file in the tree
    package: str  # Debian package and version, `libssl3=3.0.17-1`; empty when unknown


def describe_host_libraries(
    tree: Tree, sources: Mapping[str, str]
) -> tuple[HostLibrary, ...]:
    """Return the libraries that came from this machine, sorted by path.

    Args:
        tree: the frozen tree.
        sources: path below ``_internal`` → file on this machine.
    """
    digests = {file.path.removeprefix("_internal/"): file.digest for file in tree.files}
    return tuple(
        HostLibrary(path, digests[path], find_package(source))
        for path, source in sorted(sources.items())
        if path in digests
    )


def find_package(file: str) -> str:
    """Return the Debian package and version that `file` belongs to, or an empty text."""
    if shutil.which("dpkg-query") is None:
        return ""
    real = str(Path(file).resolve())
    for path in dict.fromkeys((file, real, real.removeprefix("/usr"))):
        found = _PACKAGE.match(_query("--search", path))
        if found is not None:
            version = _query("--show", "--showformat=${Version}\n", found[1])
            return f"{found[1]}={version.strip().partition(chr(10))[0]}"
    return ""


def _query(*arguments: str) -> str:
    """Ask dpkg's database; an empty text when it does not know."""
    done = subprocess.run(
        ["dpkg-query", *arguments],  # noqa: S607 - found in a builder's own PATH
        capture_output=True,
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
        check=False,
    )
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""


def read_licences(site: Path, wheels: Iterable[str]) -> dict[str, str]:
    """Return normalised name → licence of each wheel whose ``.dist-info`` is named."""
    found = {}
    for wheel in wheels:
        with (site / wheel / "METADATA").open("rb") as file:
            text = file.read(_METADATA_BYTES).decode("utf-8", "replace")
        fields = HeaderParser().parsestr(text.partition("\n\n")[0])
        licence = fields["License-Expression"] or (fields["License"] or "").strip()
        found[normal_name(fields["Name"] or "")] = licence.partition("\n")[0][:120]
    return found


def render_sbom(
    name: str,  # of the part
    tree_digest: str,  # the tree that it describes; it is the version of the part here
    lock: Lock,  # its wheels
    tools: Lock,  # those that it was built with, and that are not in it
    python: str,  # exact version of CPython
    libraries: tuple[HostLibrary, ...],  # from `describe_host_libraries`
    # from `read_licences`; wheels that it does not hold are left out
    licences: Mapping[str, str],
) -> bytes:
    """Return the bill of materials of part `name`."""
    part = {
        "type": "application",
        "bom-ref": f"stoilo:{name}",
        "name": f"stoilo-{name}",
        "version": tree_digest,
    }
    components = [
        *(
            _wheel(wheel, licences[wheel.name])
            for wheel in lock.wheels
            if wheel.name in licences  # others were needed to resolve, not to run
        ),
        {
            "type": "platform",
            "bom-ref": f"pkg:generic/python@{python}",
            "name": "python",
            "version": python,
            "purl": f"pkg:generic/python@{python}",
            "licenses": [{"license": {"id": "PSF-2.0"}}],
        },
        *(_library(library) for library in libraries),
    ]
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": part,
            "tools": {"components": [_tool(wheel) for wheel in tools.wheels]},
        },
        "components": components,
        "dependencies": [
            {
                "ref": part["bom-ref"],
                "dependsOn": sorted(str(one["bom-ref"]) for one in components),
            }
        ],
    }
    return (json.dumps(document, indent=1, sort_keys=True) + "\n").encode("ascii")


def _wheel(wheel: LockedWheel, licence: str) -> dict[str, Any]:
    """Return the component of one Python package."""
    reference = f"pkg:pypi/{wheel.name}@{quote(wheel.version, safe='')}"
    reference += f"?file_name={quote(wheel.file, safe='')}"
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": reference,
        "name": wheel.name,
        "version": wheel.version,
        "purl": reference,
        "hashes": [{"alg": "SHA-256", "content": wheel.digest}],
    }
    if licence:
        component["licenses"] = [{"license": {"name": licence}}]
    return component


def _tool(wheel: LockedWheel) -> dict[str, Any]:
    """Return one program of the build."""
    return {
        "type": "application",
        "name": wheel.name,
        "version": wheel.version,
        "hashes": [{"alg": "SHA-256", "content": wheel.digest}],
    }


def _library(library: HostLibrary) -> dict[str, Any]:
    """Return the component of one shared library."""
    package, _, version = library.package.partition("=")
    properties = [
        {"name": "stoilo:soname", "value": library.path.rpartition("/")[2]},
        {"name": "stoilo:path", "value": library.path},
    ]
    if package:
        properties.append({"name": "stoilo:debian-package", "value": package})
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": f"library:{library.path}",
        "name": library.path.rpartition("/")[2],
        "hashes": [{"alg": "SHA-256", "content": library.digest}],
        "properties": properties,
    }
    return component | ({"version": version} if version else {})
