def run(kwargs):
    text = "Grüße, Δ\n"
    data = text.encode("utf-8")
    view = memoryview(bytearray(data))
    view[0] = 103
    return [
        data, data.decode(), bytes(view[:3]), text.title().split(","), "%s-%05.2f" % ("a", 3.14159),
        text.translate({10: "!"}), "a,b".partition(","), b"\x00\xff".hex(), "x".join("ab"), ascii("ü"),
    ]


# abuse: STO-G101
import io


def run(kwargs):
    view = memoryview(b"data")
    return "REACHED" if getattr(view, "ob" + "j") else "no"
