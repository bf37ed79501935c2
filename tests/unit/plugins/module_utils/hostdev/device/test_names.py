"""Names that kernel, Kubernetes and launcher agree upon."""

from __future__ import annotations

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device import names
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Refused


def test_variable_changes_slashes_dots_and_case_only() -> None:
    assert names.variable("PCI_RESOURCE", "nvidia.com/TU104GL_Tesla-T4") == "PCI_RESOURCE_NVIDIA_COM_TU104GL_TESLA-T4"


@pytest.mark.parametrize(("value", "entries"), [("", []), ("a", ["a"]), ("a,b,", ["a", "b"]), (" a , b ", ["a", "b"])])
def test_addresses_of(value: str, entries: list[str]) -> None:
    assert names.addresses_of(value) == entries


@pytest.mark.parametrize("value", ["a,,b", "a,,", ",a", ","])
def test_empty_entries_are_refused(value: str) -> None:
    if value == ",":
        assert names.addresses_of(value) == []
        return
    with pytest.raises(Refused, match="empty"):
        names.addresses_of(value)


@pytest.mark.parametrize("pair", [("nvidia.com/a_b", "nvidia.com/a/b"), ("a.b/c", "a/b.c")])
def test_two_names_of_one_variable_are_refused_by_both_names(pair: tuple[str, str]) -> None:
    with pytest.raises(Refused) as caught:
        names.refuse_collisions({name: f"devices[{number}] ({name})" for number, name in enumerate(pair)})
    assert all(name in str(caught.value) for name in (*pair, "devices[0]", "devices[1]"))


@pytest.mark.parametrize(
    "resource",
    [
        "gpu",
        "a/b/c",
        "UPPER.com/x",
        "kubernetes.io/x",
        "x.kubernetes.io/y",
        "a.com/" + "x" * 64,
        "a.com/-x",
        "a.com/",
        "/x",
        "requests.x/y",
    ],
)
def test_resource_names_that_kubernetes_refuses(resource: str) -> None:
    with pytest.raises(Refused, match="here"):
        names.check_resource(resource, "here")


def test_socket_names_differ_where_resources_differ() -> None:
    assert names.socket_name("a/b-c") == "vfio-passthrough-a_b-c.sock"
    assert names.socket_name("a/b-c") != names.socket_name("a-b/c")
