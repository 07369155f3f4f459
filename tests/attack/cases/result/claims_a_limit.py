# /// stoilo-case
# idea = "an ending that is not its to tell"
# run = "result"
# level = "pure"
# wider = true
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
    fields = {"code": text("STO-S011"), "layer": text("limits")}
    return frame(status=text("killed"), error_text=text("REACHED"), **fields)


def parent(answer):
    return answer.decode("latin-1")
