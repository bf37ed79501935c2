"""The gRPC library as all parts of this wing import it."""

from __future__ import annotations

import os

# What forks beside gRPC's threads (ctypes asks ldconfig, a selector asks modprobe) may hang for ever in the library's own fork
# handlers, which only serve children that use gRPC. The library reads this at its first channel or server.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

try:
    import grpc
except ImportError:
    grpc = None

__all__ = ["grpc"]
