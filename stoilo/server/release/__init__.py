"""The signed release while the server runs: what it says, how long it holds, its changes."""
