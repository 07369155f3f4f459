# /// stoilo-case
# idea = "string processing"
# run = "task"
# level = "pure"
# ///
import string
import unicodedata


def caesar(text, k):
    table = str.maketrans(
        string.ascii_lowercase, string.ascii_lowercase[k:] + string.ascii_lowercase[:k]
    )
    return text.translate(table)


def run(kwargs):
    text = "Grüße, Wörld ñ \N{GREEK SMALL LETTER ALPHA}"
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return [
        caesar("hello", 3),
        plain,
        text.casefold(),
        "a-b_c".replace("-", " ").partition("_"),
        "x".join(["1", "2"]),
        [ord(c) for c in "aé"],
        b"\x00\xff".hex(),
        bytes.fromhex("0aff"),
        "tab\tsep".expandtabs(4),
        "abc"[::-1],
        "%r" % ("q",),
        "line1\nline2".splitlines(),
        "encode".encode("utf-16-le"),
    ]
