"""Objects of the API server as plain maps."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.objects import SpecEditor, at, get, merge_patch
from ansible_collections.vfio.passthrough.tests.fakes.kubevirt import merged
from hypothesis import given, settings
from hypothesis import strategies as st


def maps(values: Any) -> Any:
    return st.dictionaries(st.sampled_from("abc"), values, max_size=3)


VALUES = st.recursive(st.booleans() | st.text("ab", max_size=2) | st.lists(st.integers(0, 2), max_size=2), maps, max_leaves=8)


@settings(max_examples=300, deadline=None, database=None)
@given(maps(VALUES), maps(VALUES))
def test_a_merge_patch_leads_from_one_map_to_the_other(before: dict[str, Any], after: dict[str, Any]) -> None:
    patch = merge_patch(before, after)
    assert merged(before, patch) == after
    assert bool(patch) is (before != after)


@pytest.mark.parametrize(("value", "found"), [({"a": {"b": 1}}, 1), ({"a": {}}, None), ({"a": 3}, None), ({}, None), (None, None)])
def test_a_path_that_is_not_there_is_nothing(value: Any, found: Any) -> None:
    assert get(value, ("a", "b")) == found


def test_what_was_made_goes_with_its_last_value_and_what_was_not_made_stays() -> None:
    editor = SpecEditor({"spec": {"a": {}}}, frozenset())
    editor.put(("a", "b", "c"), [1])
    editor.put(("a", "b", "d"), [2])
    assert editor.made == {"a.b", "a.b.c", "a.b.d"}
    editor.put(("a", "b", "c"), [])
    assert (at(editor.cr, ("a",)), editor.made) == ({"b": {"d": [2]}}, {"a.b", "a.b.d"})
    editor.put(("a", "b", "d"), [])
    assert (editor.cr, editor.made) == ({"spec": {"a": {}}}, set())


def test_an_object_is_never_changed_in_place() -> None:
    cr: dict[str, Any] = {"spec": {"a": [1]}}
    SpecEditor(cr, frozenset()).put(("a",), [2])
    assert cr == {"spec": {"a": [1]}}
