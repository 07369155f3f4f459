# /// stoilo-case
# idea = "bidirectional controls"
# run = "check"
# stopped_by = "gate"
# code = "STO-P013"
# escaped = true
# source = "CVE-2021-42574"
# ///
def run(kwargs):
    """Check, then \u2067return"""; return open(kwargs["canary"]).read() #\u2069
    return 1
