# /// stoilo-case
# idea = "files by logging"
# stopped_by = "gate"
# code = "STO-P040"
# ///
import logging


def run(kwargs):
    logging.FileHandler(kwargs["mark"]).close()
    return ""
