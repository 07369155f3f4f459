"""HTTP answers of the pages: the same strict headers on every one of them.

No page has a script, an inline style or anything from elsewhere, and the browser is told
to refuse all that. What a hostile source could smuggle in would stay text.
"""

from __future__ import annotations

import hashlib

from starlette.requests import Request
from starlette.responses import Response

__all__ = ["FOREVER", "answer", "answer_download", "answer_page"]

FOREVER = "public, max-age=31536000, immutable"
_FRESH = "no-cache"
_POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
_STRICT = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


def answer(
    request: Request, body: bytes, media_type: str, *, cache: str = _FRESH
) -> Response:
    """Return `body` with the strict headers, or 304 when the reader has it already."""
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {**_STRICT, "cache-control": cache, "etag": tag}
    if tag in request.headers.get("if-none-match", "")[:1024]:
        return Response(status_code=304, headers=headers)
    return Response(body, media_type=media_type, headers=headers)


def answer_page(request: Request, html: str, status: int = 200) -> Response:
    """Return a page; one that is no success is neither cached nor compared."""
    if status == 200:  # noqa: PLR2004 - HTTP's own number
        return answer(request, html.encode(), "text/html; charset=utf-8")
    headers = {**_STRICT, "cache-control": "no-store"}
    return Response(
        html, status, media_type="text/html; charset=utf-8", headers=headers
    )


def answer_download(request: Request, body: bytes, name: str) -> Response:
    """Return a text that a browser saves as the file `name` (ours, plain ASCII)."""
    found = answer(request, body, "text/plain; charset=utf-8")
    found.headers["content-disposition"] = f'attachment; filename="{name}"'
    return found
