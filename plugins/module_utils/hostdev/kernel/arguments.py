"""Which boot arguments this machine needs for passthrough: a table by the maker of its CPU. Pure.

Decided by the CPU, never by the GPU. Facts: Documentation/admin-guide/kernel-parameters.txt; drivers/iommu/amd/init.c
(amd_iommu=on is no option); drivers/iommu/intel/iommu.c (every occurrence of intel_iommu= is parsed).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from .cmdline import Edit, Line, Word, kernel_part, of_concern, switches_off, without_off
from .iommu import IommuState, judge
from .platforms import PLATFORMS, Platform

# every word of these keys decides about DMA translation: two lines that agree in them boot alike for us
CONCERN = ("iommu", "intel_iommu", "amd_iommu", "iommu.passthrough", "iommu.strict")


@dataclass(frozen=True)
class Change:
    """What is to be done. add: words. remove: edits by exact spelling. superfluous: words that do nothing here, left alone.

    refused: why no argument would help, with what would; empty when the arguments are the answer, or already right.
    """

    add: tuple[str, ...] = ()
    remove: tuple[Edit, ...] = ()
    superfluous: tuple[str, ...] = ()
    refused: str = ""

    def __bool__(self) -> bool:
        return bool(self.add or self.remove)


def needed(state: IommuState, running: Line, following: Sequence[Line]) -> Change:
    """Return the minimum change to the lines of the next boots; running: what the kernel was started with.

    With an active IOMMU nothing is needed, unless a word that this boot did not have would switch it off at the next.
    """
    platform = PLATFORMS.get(state.vendor)
    superfluous = _superfluous(platform, [running, *following])
    if state.active:
        return Change(remove=_offs(platform, following, beside=running), superfluous=superfluous)
    change = Change(superfluous=superfluous)
    if platform and platform.table in state.tables:
        add = (platform.on,) if platform.on and not all(_is_on(platform, line) for line in following) else ()
        change = Change(add, _offs(None, following), superfluous)
        if change or any(of_concern(line, CONCERN) != of_concern(running, CONCERN) for line in following):
            return change
    # nothing is to be written and nothing waits for a reboot: the verdict says whose fault it is
    return replace(change, refused=judge(replace(state, arguments=tuple(word.text for word in running), next_arguments=None)).advice)


def _is_on(platform: Platform, line: Line) -> bool:
    return any(word.key == platform.key and "on" in word.options for word in kernel_part(line))


def _offs(platform: Platform | None, lines: Sequence[Line], beside: Line = ()) -> tuple[Edit, ...]:
    """Return the edits for the words that switch off, each once; only those that this platform reads when it is given."""
    known = {word.normal for word in beside}
    words = (word for line in lines for word in line if switches_off(word) and word.normal not in known)
    ours = (word for word in words if platform is None or word.key in ("iommu", platform.key))
    return tuple(dict.fromkeys(without_off(word) for word in ours))


def _superfluous(platform: Platform | None, lines: Iterable[Line]) -> tuple[str, ...]:
    def idle(word: Word) -> bool:
        foreign = platform is not None and word.key in ("intel_iommu", "amd_iommu") and word.key != platform.key
        return word.normal == "amd_iommu=on" or (foreign and not switches_off(word))

    return tuple(dict.fromkeys(word.normal for line in lines for word in line if idle(word)))
