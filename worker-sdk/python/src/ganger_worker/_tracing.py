"""OpenTelemetry's context, taken from a message's `traceparent` where the API is installed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_context: Any
_propagate: Any
try:
    from opentelemetry import context as _context
    from opentelemetry import propagate as _propagate
except ImportError:
    _context = _propagate = None


def attach(headers: Mapping[str, str]) -> Any:
    """Makes the message's context the current one; what :func:`detach` needs, or None."""
    if _context is None or "traceparent" not in headers:
        return None
    return _context.attach(_propagate.extract(headers))


def detach(token: Any) -> None:
    """Back to the context before."""
    if token is not None:
        _context.detach(token)
