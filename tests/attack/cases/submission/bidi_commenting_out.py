# /// stoilo-case
# idea = "bidirectional controls"
# run = "check"
# stopped_by = "gate"
# code = "STO-P013"
# escaped = true
# source = "CVE-2021-42574"
# ///
def run(kwargs):
    allowed = False
    # refuse \u202e \u2066if not allowed: return 1\u2069 \u2066
    return open(kwargs["canary"]).read()
