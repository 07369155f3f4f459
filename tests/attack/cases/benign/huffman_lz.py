# /// stoilo-case
# idea = "compression"
# ///
"""Huffman and LZ78 coding, base64, zlib streams, checksums, bit packing."""
import base64
import binascii
import hashlib
import heapq
import hmac
import struct
import zlib
from collections import Counter
from functools import total_ordering


@total_ordering
class Node:
    def __init__(self, weight, symbol=None, left=None, right=None):
        self.weight, self.symbol, self.left, self.right = weight, symbol, left, right

    def __lt__(self, other):
        return self.weight < other.weight

    def __eq__(self, other):
        return self.weight == other.weight

    def codes(self, prefix=""):
        if self.symbol is not None:
            yield self.symbol, prefix or "0"
        else:
            yield from self.left.codes(prefix + "0")
            yield from self.right.codes(prefix + "1")


def huffman(data):
    heap = [Node(w, s) for s, w in sorted(Counter(data).items())]
    heapq.heapify(heap)
    while len(heap) > 1:
        a, b = heapq.heappop(heap), heapq.heappop(heap)
        heapq.heappush(heap, Node(a.weight + b.weight, None, a, b))
    table = dict(heap[0].codes())
    bits = "".join(table[s] for s in data)
    return bits, {v: k for k, v in table.items()}


def decode(bits, table):
    out, cur = bytearray(), ""
    for bit in bits:
        cur += bit
        if cur in table:
            out.append(table[cur])
            cur = ""
    return bytes(out)


def lz78(data):
    table, out, w = {b"": 0}, [], b""
    for byte in data:
        nxt = w + bytes([byte])
        if nxt in table:
            w = nxt
        else:
            out.append((table[w], byte))
            table[nxt] = len(table)
            w = b""
    if w:
        out.append((table[w[:-1]], w[-1]))
    return out


def run(kwargs):
    data = b"she sells sea shells by the sea shore; the shells she sells are surely seashells" * 3
    bits, table = huffman(data)
    assert decode(bits, table) == data
    pairs = lz78(data)
    packed = struct.pack(f"<{len(pairs) * 2}H", *(v for p in pairs for v in p))
    comp = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    raw = comp.compress(data) + comp.flush()
    inflate = zlib.decompressobj(-zlib.MAX_WBITS)
    assert inflate.decompress(raw) + inflate.flush() == data
    key = hashlib.pbkdf2_hmac("sha256", b"pw", b"salt", 100)
    mac = hmac.new(key, data, "sha256")
    view = memoryview(bytearray(data))[4:9]
    view[0:1] = b"S"
    return {
        "ratio": [len(bits) / 8 / len(data), len(packed) / len(data), len(raw) / len(data)],
        "sums": [zlib.crc32(data), zlib.adler32(data), binascii.crc_hqx(data, 0)],
        "b": [base64.b64encode(data[:10]), base64.b85encode(data[:10]), base64.b32hexencode(data[:5])],
        "mac": mac.hexdigest(),
        "same": hmac.compare_digest(mac.digest(), hmac.digest(key, data, "sha256")),
        "hash": hashlib.new("sha1", data).hexdigest(),
        "view": view.tobytes(),
        "floats": struct.unpack(">2d", struct.pack(">2d", 1.5, -0.0)),
    }
