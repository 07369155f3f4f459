# /// stoilo-case
# idea = "generator frames"
# stopped_by = "gate"
# code = "STO-G101"
# source = "CVE-2023-37271"
# ///
def run(kwargs):
    def walk():
        yield generator.gi_frame.f_back.f_builtins["open"](kwargs["canary"]).read()

    generator = walk()
    return next(generator)
