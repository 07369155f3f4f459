"""What becomes of a workunit and its copies, and how far a host is trusted."""
