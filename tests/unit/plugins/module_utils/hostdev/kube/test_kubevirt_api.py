"""KubeVirt's object brought to what is wanted while others write it too, and what is said when the API server refuses."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Absent, Busy, Fault, Refused, Unsupported
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.kubevirt import Merge
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.kubevirt_api import KubeVirts, converge
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.permits import USB_LIST, Permit, Wanted
from ansible_collections.vfio.passthrough.tests.fakes.kubevirt import FakeKubeVirt, kubevirt

STICK = Permit(
    USB_LIST, {"resourceName": "a.com/stick", "selectors": [{"vendor": "46f4", "product": "0001"}], "externalResourceProvider": True}
)
WANTED = Wanted((STICK,), ("a.com/stick",))
EMPTY: dict[str, Any] = {"permittedHostDevices": {}}


def bring(objects: FakeKubeVirt, *, dry_run: bool = False, waited: list[float] | None = None) -> Merge:
    return converge(objects, WANTED, dry_run, sleep=(waited if waited is not None else []).append)


def usb(objects: FakeKubeVirt) -> Any:
    return objects.read()["spec"]["configuration"]["permittedHostDevices"].get("usb")


def add(resource: str) -> Any:
    """Return what somebody else does to the object: an entry of that name."""

    def work(cr: dict[str, Any]) -> None:
        cr["spec"]["configuration"]["permittedHostDevices"].setdefault("usb", []).append({"resourceName": resource})

    return work


def test_a_change_is_tried_dry_first() -> None:
    objects = FakeKubeVirt(kubevirt(EMPTY))
    bring(objects)
    assert [dry for dry, _patch in objects.patches] == [True, False]
    assert usb(objects) == [STICK.value]
    bring(objects)
    assert len(objects.patches) == 2


def test_a_dry_run_asks_and_changes_nothing() -> None:
    objects = FakeKubeVirt(kubevirt(EMPTY))
    assert bring(objects, dry_run=True).patch
    assert ([dry for dry, _patch in objects.patches], usb(objects)) == ([True], None)


@pytest.mark.parametrize("quiet", [[], [lambda _cr: None]])
def test_what_others_write_meanwhile_is_kept(quiet: list[Any]) -> None:
    objects, waited = FakeKubeVirt(kubevirt(EMPTY)), list[float]()
    objects.meanwhile = [*quiet, add("b.com/x"), add("b.com/y")]
    bring(objects, waited=waited)
    assert usb(objects) == [{"resourceName": "b.com/x"}, {"resourceName": "b.com/y"}, STICK.value]
    assert len(waited) == len(quiet) + 2


def test_conflicts_without_an_end_are_told() -> None:
    objects = FakeKubeVirt(kubevirt(EMPTY))
    objects.meanwhile = [lambda _cr: None] * 50
    with pytest.raises(Busy, match="has been modified"):
        bring(objects)
    assert usb(objects) is None


def test_a_schema_that_drops_an_entry_is_found_before_anything_is_written() -> None:
    objects = FakeKubeVirt(kubevirt(EMPTY), unknown=("usb",))
    with pytest.raises(Unsupported, match="schema of the KubeVirt object drops them"):
        bring(objects)
    assert objects.read() == kubevirt(EMPTY)


def test_the_first_list_is_told_with_the_vms_that_it_shuts_out() -> None:
    objects = FakeKubeVirt(kubevirt())
    (alone,) = bring(objects, dry_run=True).warnings
    assert alone.endswith("No VM asks for another one")
    devices = {"gpus": [{"name": "g", "deviceName": "b.com/gpu"}, {"name": "h", "deviceName": "a.com/stick"}]}
    objects.vm_list = [{"metadata": {"namespace": "team", "name": "vm1"}, "spec": {"domain": {"devices": devices}}}]
    (text,) = bring(objects).warnings
    assert "had no permittedHostDevices, which lets every resource pass" in text
    assert text.endswith("team/vm1 asks for b.com/gpu")
    assert bring(objects).warnings == ()


def test_who_may_not_list_vms_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> list[dict[str, Any]]:
        raise Refused(what="list virtualmachines.kubevirt.io", subject="all", cause="no")

    objects = FakeKubeVirt(kubevirt())
    monkeypatch.setattr(objects, "vms", refuse)
    (text,) = bring(objects).warnings
    assert "Which VMs ask for others is not known: cannot list virtualmachines.kubevirt.io" in text
    assert usb(objects) == [STICK.value]


class Answers:
    """An API of prepared answers, by the end of the path; a fault is raised."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def call(self, method: str, path: str, *, what: str, body: Any = None, **options: Any) -> Any:
        self.asked.append((f"{method} {path}", options))
        answer = self.answers[path.rpartition("/")[2]]
        if isinstance(answer, list):
            answer = answer.pop(0)
        if isinstance(answer, type):
            cause = "the API server answered 403: User x cannot get resource" if answer is Refused else "the API server answered 404"
            raise answer(what=what, subject=path, cause=cause)
        return answer


def objects_of(answers: Answers) -> KubeVirts:
    return KubeVirts(answers, "kubevirt", "main")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("listing", "words"),
    [
        (Absent, "KubeVirt is not installed. install KubeVirt first"),
        ({"items": [], "metadata": {}}, "there is no such KubeVirt object. create the KubeVirt object first"),
        (
            {"items": [{"metadata": {"namespace": "cnv", "name": "kv"}}], "metadata": {}},
            "there is no such KubeVirt object. give namespace and name of one that exists: cnv/kv",
        ),
        (Refused, "answered 404. give the namespace and name of the KubeVirt object"),
    ],
)
def test_what_is_missing_is_told(listing: Any, words: str) -> None:
    with pytest.raises(Absent) as caught:
        objects_of(Answers(main=Absent, kubevirts=listing)).read()
    assert words in str(caught.value)


def test_the_verb_that_an_account_lacks_is_named() -> None:
    with pytest.raises(Refused, match=r"give this account the verb get on kubevirts\.kubevirt\.io"):
        objects_of(Answers(main=Refused)).read()


def test_other_faults_pass() -> None:
    with pytest.raises(Fault, match="answered 404"):
        objects_of(Answers(main=Absent)).patch({}, dry_run=True)


def test_vms_are_listed_page_by_page() -> None:
    pages = [{"items": ["a"], "metadata": {"continue": "more"}}, {"items": ["b"], "metadata": {}}]
    answers = Answers(virtualmachines=pages, virtualmachineinstances={"items": ["c"], "metadata": {}})
    assert "".join(map(str, objects_of(answers).vms())) == "abc"
    assert [options.get("_continue") for _path, options in answers.asked] == [None, "more", None]
