"""Column types of both engines' tables: what SQLite and MariaDB must hold alike."""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Float, Integer, String
from sqlalchemy.dialects import mysql

__all__ = ["APP_CHARS", "NAME_CHARS", "Key", "Name", "Real"]

APP_CHARS: Final = 32
NAME_CHARS: Final = 160
# SQLite numbers rows by itself only for INTEGER keys; MariaDB shall have 64 bits.
Key = BigInteger().with_variant(Integer(), "sqlite")
# Names compare byte by byte everywhere; MariaDB's default collation would fold case.
Name = String(NAME_CHARS).with_variant(
    mysql.VARCHAR(NAME_CHARS, charset="ascii", collation="ascii_bin"),
    "mysql",
    "mariadb",
)
# MariaDB's FLOAT has 24 bits.
Real = Float().with_variant(mysql.DOUBLE(asdecimal=False), "mysql", "mariadb")
