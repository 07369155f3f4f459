"""Paracel's algorithms: a kernel over a part of the data, a fold of the parts, a step."""
