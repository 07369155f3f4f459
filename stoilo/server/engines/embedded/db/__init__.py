"""Where everything is kept: tables, transactions, rows as frozen values."""
