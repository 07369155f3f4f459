# /// stoilo-case
# idea = "bidirectional controls"
# run = "check"
# stopped_by = "gate"
# code = "STO-P013"
# escaped = true
# source = "CVE-2021-42574"
# ///
def run(kwargs):
    if "a\u061c" != "a":
        return open(kwargs["canary"]).read()
