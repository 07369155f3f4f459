"""`stoilo volunteer`: this computer helps a project, within its own opt-in."""
