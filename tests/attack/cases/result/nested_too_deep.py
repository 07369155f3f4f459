# /// stoilo-case
# idea = "sizes that are not there"
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
    value = b"STO\x01" + b"l\x01\x00\x00\x00" * 100_000 + b"N"
    return frame(status=text("ok"), value=data(value))


def parent(answer):
    def read(rest):
        return [read(rest[5:])] if rest[:1] == b"l" else None

    try:
        read(answer[answer.index(b"l\x01\x00\x00\x00") :])
    except RecursionError:
        return "REACHED"
