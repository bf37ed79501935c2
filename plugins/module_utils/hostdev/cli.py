"""The program `hostdev`: the same on a node, in a launcher image and on a controller."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .device.faults import Fault, Refused, Unsupported
from .device.version import __version__
from .root import Root

if TYPE_CHECKING:
    from .explain.facts import Where

# Each command imports what it needs when it runs: the launcher's start has no time for gRPC, nor the plugin for lxml.


def _device_plugin(options: argparse.Namespace) -> int:
    import logging

    from .kube.options import PluginOptions
    from .kube.service import run

    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    given = {name: getattr(options, name) for name in ("plugin_folder", "kubelet_root", "config", "run_folder", "host_prefix", "metrics")}
    return run(Root(), PluginOptions(**given, grants=f"{options.run_folder}/grant"))


def _launch(options: argparse.Namespace) -> int:
    from .guest.launch import LaunchOptions, launch

    return launch(LaunchOptions(emulation=options.emulation, memory_lock=options.memory_lock, by_numa=options.by_numa))


def _devices(options: argparse.Namespace) -> int:
    from .explain.listing import read_listing, table
    from .kube.options import load_declaration

    found = read_listing(Root(), load_declaration(options.config), _where(options))
    _say(json.dumps(found, indent=1) if options.format == "json" else "\n".join(table(found)))
    return 0


def _holders(options: argparse.Namespace) -> int:
    from .explain.chain import columns
    from .kube.ledger import read_ledger

    held = read_ledger(Root(), options.kubelet_root, options.plugin_folder).holdings
    rows = [("POD", "CONTAINER", "RESOURCE", "ID", "DEVICE")]
    rows += [(one.owner, one.container, one.resource, one.id, " ".join(one.values) or "-") for one in held]
    found = {"version": 1, "holders": [one.as_dict() for one in held]}
    _say(json.dumps(found, indent=1) if options.format == "json" else "\n".join(columns(rows)))
    return 0


def _where(options: argparse.Namespace) -> Where:
    from .explain.facts import Where

    return Where(options.kubelet_root, options.plugin_folder, getattr(options, "ctr", "").split())


def _domain(options: argparse.Namespace) -> int:
    from .guest.domain import render
    from .guest.settings import DomainSettings
    from .vmi.manifest import parse_manifest

    vmi = parse_manifest(_document(options.file)).instance()
    _say(render(vmi, os.environ, DomainSettings(emulation=options.emulation == "always")).rstrip())
    return 0


def _pod(options: argparse.Namespace) -> int:
    from .kube.pod import PodSettings
    from .kube.workload import objects
    from .vmi.manifest import parse_manifest

    settings = PodSettings(image=options.image, emulated=options.emulation == "always")
    for made in objects(parse_manifest(_document(options.file)), settings):
        _say("---\n" + _dump(made).rstrip())
    return 0


def _explain(options: argparse.Namespace) -> int:
    from .explain.chain import report
    from .explain.facts import read_facts
    from .explain.node import chains
    from .kube.options import load_declaration

    declaration = load_declaration(options.config)
    deadline = time.monotonic() + options.wait
    while True:
        facts = read_facts(Root(), declaration, options.launcher_image, _where(options))
        found = report(chains(declaration, facts, missing_ok=options.missing == "report"))
        if not found["broken"] or time.monotonic() >= deadline:
            break
        time.sleep(0.5)
    _say(json.dumps(found, indent=1) if options.format == "json" else "\n".join(found["table"]))
    return 3 if found["broken"] or found["pending"] else 0


def _yaml() -> Any:
    try:
        import yaml
    except ImportError:
        raise Unsupported(
            what="read YAML", subject="yaml", cause="not installed", hint="install python3-yaml, or give the document as JSON"
        ) from None
    return yaml


def _dump(value: Any) -> str:
    """Return YAML with texts of several lines as blocks, for people."""
    yaml = _yaml()
    dumper: Any = type("Dumper", (yaml.SafeDumper,), {})  # made here, since yaml may be missing
    dumper.add_representer(
        str, lambda made, text: made.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)
    )
    return str(yaml.dump(value, Dumper=dumper, sort_keys=False))


def _document(path: str) -> Any:
    """Return the one document of a YAML or JSON file, "-" for standard input."""
    try:
        with sys.stdin if path == "-" else open(path, encoding="utf-8") as file:
            text = file.read()
    except OSError as error:
        raise Fault(what="read a manifest", subject=path, cause=str(error.strerror)) from error
    if text.lstrip().startswith("{"):
        try:
            return json.loads(text)
        except ValueError as error:
            raise Refused(what="read a manifest", subject=path, cause=f"not JSON: {error}") from error
    yaml = _yaml()
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise Refused(what="read a manifest", subject=path, cause=f"not one YAML document: {error}") from error


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


def _config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", default="/etc/vfio-passthrough/devices.json", help="the declaration, JSON (default: %(default)s)")


def _format(parser: argparse.ArgumentParser) -> None:
    # text was what the table was called first
    parser.add_argument("--format", choices=("table", "text", "json"), default="table")


def _plugin_folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--plugin-folder", default="/var/lib/kubelet/device-plugins", help="the kubelet's device plugin folder (default: %(default)s)"
    )


def _kubelet(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kubelet-root", default="/var/lib/kubelet", help="the kubelet's root folder (default: %(default)s)")
    _plugin_folder(parser)


def _emulation(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--emulation", choices=("auto", "always", "never"), default=os.environ.get("HOSTDEV_EMULATION", "auto"), help="run without KVM"
    )


def _add_launch(parser: argparse.ArgumentParser) -> None:
    _emulation(parser)
    told = os.environ.get("HOSTDEV_MEMORY_LOCK")
    parser.add_argument("--memory-lock", type=int, default=told, metavar="BYTES", help="memory to ask the grant to let the guest lock")
    numa = os.environ.get("HOSTDEV_BY_NUMA") == "true"
    parser.add_argument("--by-numa", action="store_true", default=numa, help="place PCI devices by NUMA node")


def _add_device_plugin(parser: argparse.ArgumentParser) -> None:
    _config(parser)
    _plugin_folder(parser)
    parser.add_argument("--kubelet-root", default="/var/lib/kubelet", help="the kubelet's --root-dir (default: %(default)s)")
    parser.add_argument("--run-folder", default="/run/vfio-passthrough", help="of the state file and of grants (default: %(default)s)")
    parser.add_argument("--host-prefix", default="", help="what the container runtime has to put before /dev to find our nodes")
    parser.add_argument("--metrics", default="", metavar="ADDRESS:PORT", help="serve metrics for Prometheus there; local addresses only")


def _manifest(parser: argparse.ArgumentParser, kinds: str) -> None:
    parser.add_argument("file", help=f"a {kinds}, YAML or JSON; - for standard input")
    _emulation(parser)


def _add_domain(parser: argparse.ArgumentParser) -> None:
    _manifest(parser, "VirtualMachineInstance or VirtualMachine")


def _add_pod(parser: argparse.ArgumentParser) -> None:
    _manifest(parser, "VirtualMachineInstance")
    parser.add_argument("--image", default="localhost/vfio-passthrough-launcher:latest", help="the launcher image")


def _add_holders(parser: argparse.ArgumentParser) -> None:
    _format(parser)
    _kubelet(parser)


def _add_devices(parser: argparse.ArgumentParser) -> None:
    _config(parser)
    _add_holders(parser)


def _add_explain(parser: argparse.ArgumentParser) -> None:
    _add_devices(parser)
    parser.add_argument("--wait", type=float, default=0.0, help="seconds to wait until every device has arrived")
    parser.add_argument(
        "--missing", choices=("fail", "report"), default="fail", help="report: an entry that means no device of this node is no fault"
    )
    parser.add_argument("--launcher-image", default="", help="the image that has to be on the node")
    parser.add_argument("--ctr", default="ctr --namespace k8s.io", help="the command that reaches the kubelet's containerd")


COMMANDS = {
    "device-plugin": (_device_plugin, _add_device_plugin, "serve the declared devices to the kubelet"),
    "launch": (_launch, _add_launch, "run one guest; the program of the launcher image"),
    "devices": (
        _devices,
        _add_devices,
        "list the declared devices of this machine with their holders, or why they are not offered",
    ),
    "holders": (_holders, _add_holders, "list the devices of all device plugins that containers of this node hold"),
    "domain": (_domain, _add_domain, "print the domain XML of a VM for the device variables in the environment"),
    "pod": (_pod, _add_pod, "print the launcher pod of a VMI"),
    "explain": (_explain, _add_explain, "follow every declared device through kernel, Kubernetes and guest"),
}


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(prog="hostdev", description="One PCI device through kernel, Kubernetes and guest.")
    made.add_argument("--version", action="version", version=__version__)
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (work, add, text) in COMMANDS.items():
        sub = commands.add_parser(name, help=text, description=text)
        add(sub)
        sub.set_defaults(work=work)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: its own, 1 after a fault (told on standard error), 2 for wrong usage."""
    options = parser().parse_args(arguments)
    try:
        code: int = options.work(options)
    except Fault as fault:
        sys.stderr.write(f"hostdev: {fault.text()}\n")
        return 1
    except BrokenPipeError:
        return 1
    return code


if __name__ == "__main__":
    raise SystemExit(main())
