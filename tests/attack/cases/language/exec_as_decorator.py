# /// stoilo-case
# idea = "exec and eval"
# stopped_by = "gate"
# code = "STO-G020"
# ///
PLACES = {}


def run(kwargs):
    PLACES["path"] = kwargs["canary"]

    @(lambda code: eval(code, PLACES))
    @(lambda function: "open(path).read()")
    def found():
        pass

    return found
