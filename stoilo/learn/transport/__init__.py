"""How a volunteer's arrays travel: raw, compressed without loss, or as ternary signs.

A codec has two halves. One encodes in the task, as source that gate and jail treat like any
other (`stoilo.learn.kernels.encoding`); the other, here, takes bytes that nobody vouches for
and gives arrays of the model's own forms or refuses. A further codec is one function there,
one `Transport` here, and its line in `stoilo.learn.transport.codecs`.

No codec keeps anything between two tasks: the next one of the same part is computed by
somebody else. So what loses must be unbiased; error feedback has no place to live in.
"""

from __future__ import annotations

from stoilo.learn.transport.codecs import (
    Compressed,
    Raw,
    Ternary,
    Transport,
    TransportName,
    as_transport,
    ask,
    asked,
    count_bytes,
    receive,
)

__all__ = [
    "Compressed",
    "Raw",
    "Ternary",
    "Transport",
    "TransportName",
    "as_transport",
    "ask",
    "asked",
    "count_bytes",
    "receive",
]
