# /// stoilo-case
# idea = "references in a result"
# run = "result"
# stopped_by = "result"
# code = "STO-S021"
# goal = "inside"
# ///
def text(word):
    return b"s" + len(word.encode()).to_bytes(4, "little") + word.encode()


def data(content):
    return b"b" + len(content).to_bytes(8, "little") + content


def table(**fields):
    rows = b"".join(text(name) + content for name, content in fields.items())
    return b"d" + len(fields).to_bytes(4, "little") + rows


def frame(**fields):
    blank = dict.fromkeys(("error_type", "error_text", "code", "layer"), text(""))
    return b"STO\x01" + table(**(blank | fields))


def run(kwargs):
    value = b"STO\x01B" + (0).to_bytes(4, "little")
    return frame(status=text("ok"), value=data(value))


def parent(answer):
    stored = ["REACHED"]
    return stored[int.from_bytes(answer.split(b"STO\x01B")[1][:4], "little")]
