# /// stoilo-case
# idea = "files by logging"
# stopped_by = "gate"
# code = "STO-P041"
# ///
import logging


def run(kwargs):
    logging.FileHandler(kwargs["mark"]).close()
    return ""
