# /// stoilo-case
# idea = "names that look alike"
# run = "check"
# stopped_by = "gate"
# code = "STO-P020"
# escaped = true
# ///
def run(kwargs):
    return \U0001d428\U0001d429\U0001d41e\U0001d427(kwargs["canary"]).read()
