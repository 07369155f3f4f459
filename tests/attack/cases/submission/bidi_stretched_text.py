# /// stoilo-case
# idea = "bidirectional controls"
# run = "check"
# stopped_by = "gate"
# code = "STO-P013"
# escaped = true
# source = "CVE-2021-42574"
# ///
def run(kwargs):
    level = "user"
    if level != "user\u202e \u2066# check if admin\u2069 \u2066":
        return open(kwargs["canary"]).read()
