"""The Kubernetes API as the controller's modules use it: plain objects in and out, faults instead of exceptions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..device.faults import Absent, Busy, Fault, Refused, Unsupported

try:
    import kubernetes
    from kubernetes.client.exceptions import ApiException
except ImportError:
    kubernetes = None  # type: ignore[assignment]

MERGE_PATCH, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"
_SECONDS = 30
_CONFLICT, _NOT_FOUND, _FORBIDDEN, _INVALID = 409, 404, 403, 422


class Api:
    """Pods, ConfigMaps and nodes of one cluster; every object is a mapping as the API server sends it."""

    def __init__(self, kubeconfig: str = "", context: str = "") -> None:
        """Connect as the kubeconfig says, without one as the environment does ($KUBECONFIG, ~/.kube/config, in a pod).

        Unsupported without the kubernetes library, Refused for a kubeconfig that cannot be used.
        """
        if kubernetes is None:
            raise Unsupported(
                what="talk to the API server",
                subject="kubernetes",
                cause="the Python library is not installed",
                hint="pip install kubernetes",
            )
        where = kubeconfig or "the environment's kubeconfig"
        try:
            connect: Any = kubernetes.config.new_client_from_config
            self._client = connect(config_file=kubeconfig or None, context=context or None)
        except (kubernetes.config.ConfigException, OSError) as error:
            raise Refused(
                what="talk to the API server", subject=where, cause=str(error), hint="give kubeconfig and, where it has several, context"
            ) from error
        self._core: Any = kubernetes.client.CoreV1Api(self._client)

    def pod(self, namespace: str, name: str) -> dict[str, Any] | None:
        """Return a pod, or None when there is none."""
        try:
            with _calling("read a pod", f"{namespace}/{name}"):
                return self._plain(self._core.read_namespaced_pod(name, namespace, _request_timeout=_SECONDS))
        except Absent:
            return None

    def create_pod(self, pod: dict[str, Any]) -> dict[str, Any]:
        """Create a pod and return it; Refused with the API server's words when it is not accepted, Busy when the name is taken."""
        meta = pod["metadata"]
        with _calling("create a pod", f"{meta['namespace']}/{meta['name']}"):
            return self._plain(self._core.create_namespaced_pod(meta["namespace"], pod, _request_timeout=_SECONDS))

    def put_config_map(self, config_map: dict[str, Any]) -> None:
        """Create a ConfigMap, or replace the one of this name."""
        meta = config_map["metadata"]
        with _calling("write a ConfigMap", f"{meta['namespace']}/{meta['name']}"):
            try:
                self._core.create_namespaced_config_map(meta["namespace"], config_map, _request_timeout=_SECONDS)
            except ApiException as error:
                if error.status != _CONFLICT:
                    raise
                self._core.replace_namespaced_config_map(meta["name"], meta["namespace"], config_map, _request_timeout=_SECONDS)

    def delete_pod(self, namespace: str, name: str) -> bool:
        """Ask for a pod's deletion and say whether there was one."""
        try:
            with _calling("delete a pod", f"{namespace}/{name}"):
                self._core.delete_namespaced_pod(name, namespace, _request_timeout=_SECONDS)
        except Absent:
            return False
        return True

    def nodes(self) -> list[dict[str, Any]]:
        """Return all nodes."""
        with _calling("list nodes", "all"):
            return [self._plain(one) for one in self._core.list_node(_request_timeout=_SECONDS).items]

    def pods(self, node: str = "") -> list[dict[str, Any]]:
        """Return all pods, or those of one node."""
        field = f"spec.nodeName={node}" if node else ""
        with _calling("list pods", node or "all"):
            found = self._core.list_pod_for_all_namespaces(field_selector=field, _request_timeout=_SECONDS)
            return [self._plain(one) for one in found.items]

    def call(
        self, method: str, path: str, *, what: str, body: Any = None, content_type: str = MERGE_PATCH, **options: Any
    ) -> dict[str, Any]:
        """Return what a path answers, for kinds that the library has no class for; a body is a merge patch (RFC 7386), or APPLY.

        options: those of the library's dynamic client (limit, _continue, dry_run, field_manager). what: for faults.
        """
        # without discovery: it costs requests and leaves a file of a known name in the shared temporary folder
        dynamic: Any = kubernetes.dynamic.DynamicClient
        client = dynamic(self._client, discoverer=lambda _client, _cache_file: None)
        with _calling(what, path):
            answer = client.request(
                method, path, body=body, content_type=content_type, serialize=False, _request_timeout=_SECONDS, **options
            )
            made: dict[str, Any] = json.loads(answer.data)
            return made

    def _plain(self, value: Any) -> dict[str, Any]:
        made: dict[str, Any] = self._client.sanitize_for_serialization(value)
        return made


@contextmanager
def _calling(what: str, subject: str) -> Iterator[None]:
    kinds: dict[int, type[Fault]] = {_NOT_FOUND: Absent, _CONFLICT: Busy, _FORBIDDEN: Refused, _INVALID: Refused}
    try:
        yield
    except ApiException as error:
        said = _words(error)
        raise kinds.get(error.status, Fault)(what=what, subject=subject, cause=f"the API server answered {error.status}: {said}") from error
    except Fault:
        raise
    except Exception as error:
        # urllib3's family, which the library does not wrap: refused, unreachable, bad certificate
        hint = "is the cluster up, and is this the right kubeconfig?"
        raise Fault(what=what, subject=subject, cause=f"the API server does not answer: {error}", hint=hint) from error


def _words(error: Any) -> str:
    try:
        return str(json.loads(error.body)["message"])
    except (ValueError, KeyError, TypeError):
        return str(error.reason)
