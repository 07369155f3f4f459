# /// stoilo-case
# idea = "code that runs elsewhere"
# run = "check"
# stopped_by = "gate"
# code = "STO-P033"
# ///
def run(kwargs):
    return open(kwargs["canary"]).read()


if __name__ == "__main__":
    run({})
