"""Capture by source: a callable and its data become two readable modules and nodes.

`capture_task` is the only door. It executes nothing of the researcher's; it looks at
code objects, closures and values of the running interpreter and writes down, as text,
what the function reaches. The same function with the same data gives the same bytes.
"""

from __future__ import annotations

from stoilo.client.capture.modules import Captured, CapturedCalls, capture_calls
from stoilo.client.capture.modules import capture_task as capture_task

__all__ = ["Captured", "CapturedCalls", "capture_calls", "capture_task"]
