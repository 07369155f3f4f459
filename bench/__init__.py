"""Benchmarks: ours and the peer's in the same run, as ratios with medians."""
