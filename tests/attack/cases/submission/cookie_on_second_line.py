# /// stoilo-case
# idea = "coding cookies"
# run = "check"
# stopped_by = "gate"
# code = "STO-P011"
# escaped = true
# ///
#!/usr/bin/env python
# vim: set fileencoding=utf-7 :
# An honest task. +AAo-READ = open
def run(kwargs):
    return READ(kwargs["canary"]).read()
