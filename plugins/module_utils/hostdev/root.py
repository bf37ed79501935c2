"""Where the machine's files are, how they are written, how commands run: one object that readers and writers take."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Callable, Optional

from .device.faults import Absent, Fault, Timeout


@dataclass(frozen=True)
class Done:
    """What a command answered: its exit code and its output as text."""

    code: int
    out: str
    err: str


Runner = Callable[[Sequence[str], float], Done]
KernelWriter = Callable[[Path, str, Optional[float]], None]


def run_process(command: Sequence[str], timeout: float) -> Done:
    """Run a command with the C locale and return what it answered; Absent when there is no such program, Timeout after timeout seconds."""
    env = dict(os.environ, LC_ALL="C", LANGUAGE="C")
    try:
        done = subprocess.run(  # pylint: disable=ansible-bad-function
            list(command), capture_output=True, text=True, errors="replace", timeout=timeout, env=env, check=False
        )
    except FileNotFoundError as missing:
        raise Absent(
            what="run a command", subject=command[0], cause="no such program on this machine", hint=f"install {command[0]}"
        ) from missing
    except subprocess.TimeoutExpired as late:
        raise Timeout(what="run a command", subject=" ".join(command), cause=f"no answer within {timeout:.0f} s") from late
    return Done(done.returncode, done.stdout, done.stderr)


def write_attribute(path: Path, text: str, timeout: Optional[float]) -> None:
    """Write to a kernel attribute; with a timeout (seconds) in a child process, so that a write that hangs is left behind.

    A process stuck in a driver's remove function cannot be killed: after the timeout the child is abandoned, not waited
    for. Timeout then, Fault when the kernel refuses.
    """
    if timeout is None:
        write_kernel(path, text)
        return
    child = subprocess.Popen(  # pylint: disable=ansible-bad-function
        ["tee", str(path)], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    )
    subject = f"{path} <- {text.strip() or '(newline)'}"
    try:
        _out, said = child.communicate(text.encode(), timeout)
    except subprocess.TimeoutExpired as late:
        raise Timeout(what="write a kernel attribute", subject=subject, cause=f"the write did not return within {timeout:.0f} s") from late
    if child.returncode != 0:
        answer = said.decode(errors="replace").strip().rpartition(": ")[2] or f"exit code {child.returncode}"
        raise Fault(what="write a kernel attribute", subject=subject, cause=answer)


def start_process(command: Sequence[str], env: Mapping[str, str], output: Path) -> int:
    """Start a program that stays and return its pid; it leads a process group of its own and writes both outputs to a new file.

    The program is looked up on env's PATH. The caller reaps it (os.waitpid). Absent when there is no such program.
    """
    program = shutil.which(command[0], path=env.get("PATH"))
    if program is None:
        raise Absent(what="start a program", subject=command[0], cause=f"not found on PATH ({env.get('PATH', '')})")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
    files = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0), (os.POSIX_SPAWN_OPEN, 1, str(output), flags, 0o600)]
    try:
        # Python ignores SIGPIPE and SIGXFSZ, and a started program would inherit that
        ignored = [signal.SIGPIPE, signal.SIGXFSZ]
        actions = [*files, (os.POSIX_SPAWN_DUP2, 1, 2)]
        return os.posix_spawn(  # pylint: disable=ansible-bad-function
            program, list(command), env, file_actions=actions, setpgroup=0, setsigmask=[], setsigdef=ignored
        )
    except OSError as error:
        raise Fault(what="start a program", subject=program, cause=f"{error.strerror} (errno {error.errno})") from error


@dataclass(frozen=True)
class Root:
    """The machine as files below one folder ("/" in life, a made tree in tests), a runner of commands, a writer to the kernel.

    Paths are given as on the machine ("/sys/bus/pci/devices"); `at` maps them below the root.
    """

    base: Path = Path("/")
    runner: Runner = field(default=run_process, compare=False)
    kernel_writer: KernelWriter = field(default=write_attribute, compare=False)

    def at(self, path: str) -> Path:
        """Return where the machine's path is for us."""
        return self.base / path.lstrip("/")

    @cached_property
    def prefix(self) -> str:
        """Return what stands before the machine's paths, as text, for readers that are called too often for Path objects."""
        return str(self.base).rstrip("/")

    def sysfs(self, *parts: str) -> Path:
        """Return a path below the machine's /sys."""
        return self.at("/sys").joinpath(*parts)

    def proc(self, *parts: str) -> Path:
        """Return a path below the machine's /proc."""
        return self.at("/proc").joinpath(*parts)

    def dev(self, *parts: str) -> Path:
        """Return a path below the machine's /dev."""
        return self.at("/dev").joinpath(*parts)

    def tell_kernel(self, path: Path, text: str, timeout: Optional[float] = None) -> None:
        """Write to a kernel attribute; with a timeout the write may be abandoned (Timeout). Success proves no effect: read back."""
        self.kernel_writer(path, text, timeout)

    def run(self, command: Sequence[str], timeout: float = 300.0) -> Done:
        """Run a command and return its answer, whatever its exit code."""
        return self.runner(command, timeout)

    def must(self, command: Sequence[str], what: str, hint: str = "", timeout: float = 300.0) -> str:
        """Run a command that has to succeed and return its output; a Fault named after `what` otherwise."""
        done = self.run(command, timeout)
        if done.code != 0:
            said = (done.err or done.out).strip().splitlines()
            raise Fault(
                what=what, subject=" ".join(command), cause=f"exit code {done.code}: {' / '.join(said[-3:]) or 'no output'}", hint=hint
            )
        return done.out


def read_text(path: Path | str) -> str | None:
    """Return a file's text without the white space at its end, or None when it is absent or the kernel will not give it."""
    # a sysfs attribute is a few bytes: Python's own file object would cost four times the reading
    try:
        handle = os.open(path, os.O_RDONLY)
        try:
            data = b""
            while part := os.read(handle, 1 << 16):
                data += part
        finally:
            os.close(handle)
    except OSError:
        return None
    return data.decode("utf-8", "replace").replace("\r\n", "\n").rstrip()


def read_link_name(path: Path | str) -> str | None:
    """Return the last part of a link's target ("vfio-pci" for a driver link), or None when there is no link."""
    try:
        return os.path.basename(os.readlink(path)) or None
    except OSError:
        return None


def write_kernel(path: Path, text: str) -> None:
    """Write to a kernel attribute in one write; Fault with the kernel's answer when it refuses.

    Success says nothing about the effect (host-side drivers ignore writes): callers read back.
    """
    try:
        handle = os.open(path, os.O_WRONLY)
        try:
            os.write(handle, text.encode())
        finally:
            os.close(handle)
    except OSError as error:
        raise Fault(
            what="write a kernel attribute",
            subject=f"{path} <- {text.strip() or '(newline)'}",
            cause=f"{error.strerror} (errno {error.errno})",
        ) from error


def write_file(path: Path, text: str, mode: int = 0o644) -> None:
    """Replace a file whole: written beside it with its final mode, synced, renamed; parents are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        os.replace(name, path)
        _sync_folder(path.parent)
    except OSError as error:
        Path(name).unlink(missing_ok=True)
        raise Fault(what="write a file", subject=str(path), cause=f"{error.strerror} (errno {error.errno})") from error


def remove_file(path: Path) -> bool:
    """Delete a file and say whether it was there."""
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    _sync_folder(path.parent)
    return True


def _sync_folder(folder: Path) -> None:
    # a rename is only safe over a power cut once its folder is on the disk
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def entries(folder: Path) -> list[str]:
    """Return the names in a folder, sorted; none when the folder is absent."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def number_of(text: str | None) -> int | None:
    """Return the number that a text is, 0 or more; None for any other text (a kernel attribute may be empty, "-1", or torn)."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 10 else None


def key_values(text: str) -> dict[str, str]:
    """Return the KEY=VALUE lines of a text such as a uevent file; other lines are passed over."""
    pairs = (line.partition("=") for line in text.splitlines())
    return {key: value for key, mark, value in pairs if mark}
