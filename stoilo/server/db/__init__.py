"""The server's tables: connections and transactions, rows by name, states and their moves."""
