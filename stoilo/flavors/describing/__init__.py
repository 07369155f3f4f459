"""Libraries as data: a first draft of one from what is installed, and the check of one."""
