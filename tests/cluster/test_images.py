from __future__ import annotations

import hashlib
import json
import os
import re
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.vfio.passthrough.files.image import build_image
from ansible_collections.vfio.passthrough.files.image.archive import Entry, names_in, write_image, write_layer
from ansible_collections.vfio.passthrough.files.image.images import IMAGES, LAUNCHER, Image
from ansible_collections.vfio.passthrough.files.image.packages import machine_mirror
from ansible_collections.vfio.passthrough.tests.cluster import images
from ansible_collections.vfio.passthrough.tests.cluster.controlplane import ControlPlane
from ansible_collections.vfio.passthrough.tests.cluster.node import NativeNode
from ansible_collections.vfio.passthrough.tests.cluster.pods import pod, wait_for_phase

RUNTIME = Path(__file__).resolve().parents[2] / "plugins/module_utils/hostdev"
PROBE = """
set -e
id -u
hostdev --help | head -1
PYTHONVERBOSE=1 PYTHONPATH=/usr/lib/vfio-passthrough python3 -c 'import hostdev.cli, hostdev.guest.launch' 2>&1 |
    awk '/^# code object from .*vfio-passthrough/ { n[/pyc/]++ } END { print n[0] + 0, (n[1] > 30) }'
qemu-img create -q -f qcow2 /tmp/disk 1M && qemu-img info /tmp/disk | grep "file format" | head -1
grep -l '<arch>x86_64' /usr/share/vfio-passthrough/capabilities/*.xml | wc -l
libvirtd --daemon
for attempt in 1 2 3 4 5 6 7 8 9 10; do virsh -q -c qemu:///session version && break; sleep 1; done
python3 -c 'import libvirt, lxml.etree, yaml; print(libvirt.open("qemu:///session").getURI())'
"""


@pytest.fixture
def runtime(tmp_path: Path) -> Path:
    (tmp_path / "hostdev/kube/__pycache__").mkdir(parents=True)
    (tmp_path / "hostdev/kube/__pycache__/x.pyc").write_bytes(b"x")
    (tmp_path / "hostdev/cli.py").write_text("def main(arguments): return 0\n", encoding="ascii")
    return tmp_path / "hostdev"


def test_runtime_of_a_tree_and_of_an_archive_are_one_layer(runtime: Path, tmp_path: Path) -> None:
    archive = tmp_path / "runtime.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(runtime, "hostdev")
    entries = build_image.runtime_entries(runtime)
    assert entries == build_image.runtime_entries(archive)
    assert [entry.path for entry in entries if entry.data is not None] == [f"{build_image.HOME}/cli.py", "usr/bin/hostdev"]


def test_folder_without_a_runtime_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="holds no runtime"):
        build_image.runtime_entries(tmp_path)


@pytest.mark.parametrize("image", IMAGES.values(), ids=lambda image: str(image.name))
def test_name_follows_the_runtime_and_the_packages(image: Image, runtime: Path, tmp_path: Path) -> None:
    (tmp_path / "packages.txt").write_text("python3\n", encoding="ascii")
    first = images.product_name(image, runtime)
    assert first == images.product_name(image, runtime)
    assert first.startswith(f"localhost/vfio-passthrough-{image.name.replace('_', '-')}:")
    assert first != images.product_name(replace(image, packages=tmp_path / "packages.txt"), runtime)
    (runtime / "more.py").touch()
    assert first != images.product_name(image, runtime)


@pytest.mark.parametrize("image", IMAGES.values(), ids=lambda image: str(image.name))
def test_containerfile_makes_the_same_image(image: Image) -> None:
    """Both ways read one list, use the same files for the root file system, and run the same program as the same user."""
    text = (image.folder / "Containerfile").read_text(encoding="utf-8")
    [entrypoint] = re.findall(r"^ENTRYPOINT (.*)$", text, re.MULTILINE)
    assert tuple(json.loads(entrypoint)) == image.entrypoint
    assert re.findall(r"^USER (.*)$", text, re.MULTILINE) == [image.user]
    env = dict(pair.split("=", 1) for line in re.findall(r"^ENV (.*)$", text, re.MULTILINE) for pair in line.split())
    assert env == {key: value for key, value in image.env.items() if key != "PATH"}  # PATH is that of the base image
    tree = image.folder.parent.parent
    used = [image.packages, *image.shape, tree / "files/image/hostdev", build_image.RUNTIME]
    copied = {name for line in re.findall(r"^COPY (?:--\S+ )?(.*) \S+$", text, re.MULTILINE) for name in line.split()}
    assert copied == {path.relative_to(tree).as_posix() for path in used}


def test_byte_code_is_of_the_images_own_python_and_always_the_same(tmp_path: Path) -> None:
    base, entries = images.packages_layer(LAUNCHER), build_image.runtime_entries(RUNTIME)
    made = build_image.compiled(entries, base, tmp_path)
    assert made == build_image.compiled(entries, base, tmp_path)
    code = {entry.path: entry.data for entry in made if entry.data is not None}
    with tarfile.open(base) as tar:
        tag = os.path.basename(tar.getmember("./usr/bin/python3").linkname).replace("python", "cpython-").replace(".", "")
    places = [Path(entry.path) for entry in entries if entry.path.endswith(".py")]
    assert sorted(code) == sorted(f"{place.parent}/__pycache__/{place.stem}.{tag}.pyc" for place in places)
    # PEP 552: by hash, and never compared with the source
    assert {data[4:8] for data in code.values()} == {b"\x01\0\0\0"}
    assert not [data for data in code.values() if str(tmp_path).encode() in data]


def test_archive_names_its_layers_by_their_sums(tmp_path: Path) -> None:
    layers = [write_layer(tmp_path / f"{n}.tar", [Entry(f"file{n}", b"x")]) for n in range(2)]
    out = write_image(tmp_path / "x.tar", "localhost/x:1", layers, env={"A": "b"}, entrypoint=["p"], user="107:107")
    with tarfile.open(out) as tar:
        contents = {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]
    manifest = json.loads(contents["manifest.json"])[0]
    config = json.loads(contents[manifest["Config"]])
    assert manifest["RepoTags"] == ["localhost/x:1"]
    assert config["config"] == {"Env": ["A=b"], "Entrypoint": ["p"], "User": "107:107"}
    sums = [f"sha256:{hashlib.sha256(contents[layer]).hexdigest()}" for layer in manifest["Layers"]]
    assert config["rootfs"]["diff_ids"] == sums
    assert names_in(out) == ["localhost/x:1"]
    assert not list(tmp_path.glob(".x.tar*"))


@pytest.mark.parametrize(
    ("file", "text", "mirror"),
    [
        ("sources.list", "# c\ndeb [signed-by=/k] http://mirror.example/debian trixie main\n", "http://mirror.example/debian"),
        ("sources.list.d/d.sources", "Types: deb\nURIs: http://mirror.example/debian/\nSuites: trixie\n", "http://mirror.example/debian/"),
        ("sources.list.d/u.sources", "Types: deb\nURIs: http://mirror.example/ubuntu\nSuites: noble\n", ""),
        ("sources.list.d/d.sources.bak", "URIs: http://mirror.example/debian\n", ""),
    ],
)
def test_mirror_is_that_of_the_machine(tmp_path: Path, file: str, text: str, mirror: str) -> None:
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / file).write_text(text, encoding="ascii")
    assert machine_mirror(tmp_path) == mirror


def test_launcher_image_runs_the_runtime_and_libvirt_as_its_user(control_plane: ControlPlane, native_node: NativeNode) -> None:
    name = native_node.import_image(images.launcher_image(RUNTIME))
    manifest = pod("launcher", ["sh", "-c", PROBE], image=name, node=native_node.name, user=107)
    control_plane.apply(manifest)
    wait_for_phase(control_plane, "launcher", "Succeeded", "Failed")
    lines = native_node.pod_log("default", "launcher", "main").splitlines()
    control_plane.kubectl("delete", "pod", "launcher")
    assert lines[0] == "107"
    assert lines[1].startswith("usage: hostdev")
    # nothing was compiled at the start, qemu-img makes layers over disks, and libvirt need not ask QEMU
    assert lines[2:5] == ["0 1", "file format: qcow2", "1"]
    assert lines[-1] == "qemu:///session"
