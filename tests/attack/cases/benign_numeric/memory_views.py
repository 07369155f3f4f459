# /// stoilo-case
# idea = "buffers and bytes"
# level = "numeric"
# ///
"""Bytes in and out of arrays: hashes, checksums, headers, bit planes, dtype views."""
import base64
import hashlib
import struct
import zlib
from array import array

import numpy as np


def to_wav(samples, rate):
    data = (np.clip(samples, -1, 1) * 32767).astype("<i2")
    header = struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 36 + data.nbytes, b"WAVE", b"fmt ", 16, 1, 1, rate, 2 * rate, 2, 16, b"data", data.nbytes)
    return header + data.tobytes()


def from_wav(blob):
    (rate,) = struct.unpack_from("<I", blob, 24)
    return rate, np.frombuffer(blob, dtype="<i2", offset=44) / 32767


def run(kwargs):
    t = np.arange(800) / 8000
    blob = to_wav(0.5 * np.sin(2 * np.pi * 440 * t), 8000)
    rate, back = from_wav(blob)
    a = np.arange(4, dtype="<u4")
    view = memoryview(a)
    view[1] = 77
    words = a.view(np.uint8).reshape(4, 4)
    big = a.astype(">u4")
    buf = bytearray(8)
    np.frombuffer(buf, dtype="<f8")[:] = np.pi
    from_std = np.array(array("d", [1.0, 2.5]))
    z = np.array([1 + 2j, 3 - 1j])
    bits = np.unpackbits(np.array([200, 7], np.uint8), bitorder="little")
    floats = np.array([1.0, -2.0], dtype=np.float32)
    mantissa = floats.view(np.uint32) & 0x7FFFFF
    return {
        "sha": hashlib.sha256(blob).hexdigest(),
        "direct": hashlib.md5(np.arange(5, dtype="<i8")).hexdigest(),
        "crc": zlib.crc32(a),
        "rate": rate,
        "error": float(np.abs(back - 0.5 * np.sin(2 * np.pi * 440 * t)).max() < 1e-4),
        "words": words,
        "big": big.tobytes() == a.byteswap().tobytes(),
        "pi": struct.unpack("<d", buf)[0],
        "std": from_std,
        "z": z.view(float),
        "bits": bits,
        "mantissa": mantissa,
        "b64": base64.b64encode(a).decode(),
        "bytes": bytes(a[:1]),
        "list": view.tolist(),
        "format": (view.format, view.itemsize, view.nbytes, view.readonly),
        "half": np.float16(0.1).tobytes(),
    }
