"""spec.resourceClaims: the DRA claims of the pod, by their shape."""

from __future__ import annotations

from dataclasses import dataclass

from .schema import TEXT, row


@dataclass(frozen=True)
class ResourceClaim:
    """A claim of the pod: one that exists, or a template of which Kubernetes makes one for each pod."""

    name: str = row("name", TEXT, required=True)
    resource_claim: str | None = row("resourceClaimName", TEXT)
    template: str | None = row("resourceClaimTemplateName", TEXT)
