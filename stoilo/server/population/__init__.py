"""A population of hosts on a virtual clock, against the embedded engine's own rules."""
