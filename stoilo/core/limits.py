"""Every bound of the system, as data with units. Nothing outside is read past these."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

KIB = 1024
MIB = 1024 * KIB


class Bounds(msgspec.Struct, frozen=True):
    """Sizes and counts accepted from another party (bytes unless said otherwise)."""

    source_bytes: int = 256 * KIB  # one module's text
    source_line_chars: int = 10_000
    ast_nodes: int = 50_000
    ast_depth: int = 50
    value_depth: int = 64  # nesting of one encoded value
    value_nodes: int = 1_000_000  # elements in one encoded value
    value_bytes: int = 256 * MIB  # one encoded value
    name_chars: int = 128  # identifiers, entries, labels
    inline_arguments_bytes: int = 1 * MIB  # larger values travel as blobs
    blob_bytes: int = 256 * MIB
    blobs_per_task: int = 64
    statement_bytes: int = 64 * KIB
    envelope_bytes: int = 128 * KIB
    proof_bytes: int = 144 * KIB
    metadata_bytes: int = 512 * KIB  # one TUF file
    scheduler_request_bytes: int = 4 * MIB
    result_header_bytes: int = 12 * KIB  # with the checkpoint in it
    seen_checkpoint_bytes: int = 4 * KIB  # the note that an executor sends back
    review_bytes: int = 4 * KIB
    rpc_message_bytes: int = 2 * MIB  # to the server
    rpc_answer_bytes: int = 32 * MIB  # from it
    token_chars: int = 256
    map_items: int = 10_000  # items in one chunked workunit


BOUNDS = Bounds()


@dataclass(frozen=True, slots=True)
class RunLimits:
    """What one run in the jail may use.

    Attributes:
        cpu_s: processor time, s.
        wall_s: elapsed time, s.
        memory_bytes: address space above what the warm zygote already holds.
        result_bytes: encoded result.
        output_bytes: captured print output.
        threads: 1 means no thread can be started.
    """

    cpu_s: int = 60
    wall_s: int = 120
    memory_bytes: int = 512 * MIB
    result_bytes: int = 16 * MIB
    output_bytes: int = 64 * KIB
    threads: int = 1


def lowest_limits(*all_limits: RunLimits) -> RunLimits:
    """Return the smallest of each limit (design §4: admission, level, opt-in)."""
    return RunLimits(
        cpu_s=min(limit.cpu_s for limit in all_limits),
        wall_s=min(limit.wall_s for limit in all_limits),
        memory_bytes=min(limit.memory_bytes for limit in all_limits),
        result_bytes=min(limit.result_bytes for limit in all_limits),
        output_bytes=min(limit.output_bytes for limit in all_limits),
        threads=min(limit.threads for limit in all_limits),
    )
