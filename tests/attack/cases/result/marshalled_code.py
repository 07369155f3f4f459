# /// stoilo-case
# idea = "code instead of data"
# run = "result"
# stopped_by = "result"
# code = "STO-S021"
# ///
import marshal


def run(kwargs):
    source = "import os; os.mkdir(" + repr(kwargs["mark"]) + ")"
    return marshal.dumps(compile(source, "", "exec"))


def parent(answer):
    exec(marshal.loads(answer))
