"""stoilo: run a Python function on volunteers' computers, checked, logged and jailed."""
