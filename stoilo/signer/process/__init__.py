"""The process that holds the online keys, and how a server starts and asks it."""
