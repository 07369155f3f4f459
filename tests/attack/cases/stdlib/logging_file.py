# /// stoilo-case
# idea = "files by logging"
# stopped_by = "language"
# code = "STO-G200"
# ///
import logging


def run(kwargs):
    logging.basicConfig(filename=kwargs["mark"])
    return ""
