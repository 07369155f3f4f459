# /// stoilo-case
# idea = "reduce protocol"
# stopped_by = "gate"
# code = "STO-G101"
# source = "asteval issue 86"
# ///
def run(kwargs):
    iterate = iter([1]).__reduce__()[0]
    return iterate.__self__.open(kwargs["canary"]).read()
