# /// stoilo-case
# idea = "pickles"
# run = "result"
# stopped_by = "result"
# code = "STO-S021"
# ///
import pickle


class Thief:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        import os

        return (os.mkdir, (self.path,))


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
    value = pickle.dumps(Thief(kwargs["mark"]), 2)
    return frame(status=text("ok"), value=data(value))


def parent(answer):
    return pickle.loads(answer[answer.index(b"\x80\x02") :])
