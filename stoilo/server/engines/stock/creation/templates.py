"""BOINC's input and result templates, as text; pure.

A template says what every workunit of its kind has in common: the open names of its files,
what a copy may cost, and to whom it may go (`marks`). It never says how many copies there
are or must agree: what a template says wins over ``create_work``'s command line without a
word, so a quorum in one would silently replace the researcher's.

Equal templates have equal names, so a few files serve for all tasks.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stoilo.core.boinc.xml import escape
from stoilo.executor.verifier.workunit import RESULT
from stoilo.server.engines.stock.project.host_filter import NO_BATCH, batch_of

if TYPE_CHECKING:
    from stoilo.server.engines.workunits import WorkunitSpec


_DIGITS: Final = 2
_NAME_DIGITS: Final = 24  # BOINC stores 63 characters of a result template's path
_DISK_BYTES: Final = 1_000_000_000
_MEMORY_BYTES: Final = 500_000_000


@dataclass(frozen=True, slots=True)
class InputSlot:
    """A place for an input file: its open name, and whether hosts keep it."""

    open_name: str
    sticky: bool


@dataclass(frozen=True, slots=True)
class Template:
    """A template: its file's name below ``templates``, and the text."""

    name: str
    text: str


def input_template(spec: WorkunitSpec, slots: tuple[InputSlot, ...]) -> Template:
    """Return the input template for a workunit with files for `slots`, in order.

    Costs are rounded up to two digits, or each task would have a template of its own.
    """
    infos = "".join(_file_info(number, slot) for number, slot in enumerate(slots))
    refs = "".join(_file_ref(number, slot) for number, slot in enumerate(slots))
    costs = (
        ("rsc_fpops_est", spec.fpops_est),
        ("rsc_fpops_bound", spec.fpops_bound),
        ("rsc_memory_bound", spec.memory_bound or _MEMORY_BYTES),
        ("rsc_disk_bound", spec.disk_bound or _DISK_BYTES),
    )
    lines = "".join(
        f"    <{tag}>{_round_up(value):.6e}</{tag}>\n" for tag, value in costs
    )
    batch = batch_of(reviewed=spec.reviewed, public=spec.public_source)
    if batch != NO_BATCH:
        lines += f"    <batch>{batch}</batch>\n"
    text = (
        f"<input_template>\n{infos}<workunit>\n{refs}{lines}</workunit>\n"
        "</input_template>\n"
    )
    return Template(f"stoilo_in_{_digest(text)}", text)


def result_template(max_bytes: int) -> Template:
    """Return the result template for one result file of at most so many bytes."""
    text = (
        "<output_template>\n<file_info>\n    <name><OUTFILE_0/></name>\n"
        "    <generated_locally/>\n    <upload_when_present/>\n"
        f"    <max_nbytes>{max_bytes}</max_nbytes>\n    <url><UPLOAD_URL/></url>\n"
        "</file_info>\n<result>\n    <file_ref>\n"
        "        <file_name><OUTFILE_0/></file_name>\n"
        f"        <open_name>{RESULT}</open_name>\n    </file_ref>\n</result>\n"
        "</output_template>\n"
    )
    return Template(f"stoilo_out_{_digest(text)}", text)


def _file_info(number: int, slot: InputSlot) -> str:
    sticky = "    <sticky/>\n" if slot.sticky else ""
    return (
        f"<file_info>\n    <number>{number}</number>\n{sticky}"
        "    <no_delete/>\n</file_info>\n"
    )


def _file_ref(number: int, slot: InputSlot) -> str:
    return (
        f"    <file_ref>\n        <file_number>{number}</file_number>\n"
        f"        <open_name>{escape(slot.open_name)}</open_name>\n    </file_ref>\n"
    )


def _round_up(value: float) -> float:
    step = 10.0 ** (math.floor(math.log10(value)) - _DIGITS + 1)
    return math.ceil(value / step) * step


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_NAME_DIGITS]
