# /// stoilo-case
# idea = "a validator that looks around"
# run = "validator"
# stopped_by = "gate"
# code = "STO-G101"
# ///
def init(value):
    def walk():
        yield generator.gi_frame.f_back.f_back.f_builtins["open"]

    generator = walk()
    raise ValueError(next(generator)(value["canary"]).read())
