# /// stoilo-case
# idea = "bits and bytes"
# run = "task"
# level = "pure"
# ///
import base64
import binascii
import hashlib
import struct
import zlib
from array import array
from io import BytesIO, StringIO


def run(kwargs):
    packed = struct.pack("<IfH", 7, 1.5, 9)
    buffer = BytesIO()
    buffer.write(packed)
    buffer.seek(4)
    values = array("d", [1.0, 2.0])
    values.append(3.5)
    text = StringIO()
    print("captured", 1, file=text)
    view = memoryview(b"abcdef")[2:4]
    return [
        packed,
        struct.unpack("<IfH", packed),
        buffer.read(),
        hashlib.sha256(b"x").hexdigest(),
        base64.b64encode(b"hello"),
        binascii.crc32(b"abc"),
        zlib.decompress(zlib.compress(b"aaaa" * 20)),
        list(values),
        text.getvalue(),
        bytes(view),
        (1 << 70) + 0b1011,
        (-5).to_bytes(2, "big", signed=True),
        int.from_bytes(b"\x01\x02", "little"),
    ]
