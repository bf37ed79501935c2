"""A PCI function with any ids, served to QEMU by the vfio-user protocol: one process per function.

    vfio_user.py SOCKET LOG VENDOR DEVICE CLASS [--bar-mib N] [--multifunction]

The function has one memory BAR, and FLR, power management and MSI in its configuration space. BAR 0 is the test
device's register file: 0x00 magic, 0x04 liveness (reads back inverted), 0x80 source, 0x88 target, 0x90 length and
0x98 go/state of a copy engine that works through the machine's IOMMU and raises MSI when it is done.
LOG tells what was done to the function, one line each: FLR, RESET, map, unmap, set_irqs, dma_read, dma_write.
Source of the protocol: docs/interop/vfio-user.rst of QEMU.
"""

from __future__ import annotations

import argparse
import array
import contextlib
import json
import os
import socket
import struct
from pathlib import Path
from typing import Callable, NamedTuple

MAGIC = 0x0BE4EF01
REPLY, NO_REPLY, ERROR = 0x1, 0x10, 0x20
ENOSYS, EINVAL = 38, 22
DMA_READ, DMA_WRITE = 11, 12
BAR0, CONFIG = 0, 7
MSI = 1
HEADER = struct.Struct("<HHIII")
PM, EXPRESS, MSI_CAPABILITY = 0x40, 0x60, 0xA0
DEVICE_CONTROL_HIGH = EXPRESS + 9
# which bits of configuration space software may write, by offset
WRITABLE = {
    0x04: 0x47,
    0x05: 0x05,
    0x0C: 0xFF,
    0x3C: 0xFF,
    PM + 4: 0x03,
    PM + 5: 0x01,
    EXPRESS + 8: 0xFF,
    EXPRESS + 9: 0x7F,
    EXPRESS + 16: 0xFF,
    MSI_CAPABILITY + 2: 0x01,
    **dict.fromkeys(range(0x10, 0x28), 0xFF),
    **dict.fromkeys(range(MSI_CAPABILITY + 4, MSI_CAPABILITY + 14), 0xFF),
}


class Identity(NamedTuple):
    """What a function says it is: numbers as lspci -n shows them."""

    vendor: int
    device: int
    pci_class: int
    bar_mib: int = 16
    multifunction: bool = False


class Message(NamedTuple):
    """One message of the protocol."""

    number: int
    command: int
    flags: int
    error: int
    body: bytes
    files: list[int]


class ConfigSpace:
    """The 4 KiB of configuration space, with the writable bits of each byte."""

    def __init__(self, identity: Identity) -> None:
        self.initial = _configuration(identity)
        self.data = bytearray(self.initial)

    def write(self, offset: int, data: bytes) -> bool:
        """Write what may be written; return whether a function level reset was asked for."""
        reset = False
        for index, value in enumerate(data, offset):
            mask = WRITABLE.get(index, 0)
            reset = reset or (index == DEVICE_CONTROL_HIGH and bool(value & 0x80))
            self.data[index] = self.data[index] & ~mask | value & mask
        return reset


class Server:
    """Answers one QEMU over one connected socket until it hangs up."""

    def __init__(self, link: socket.socket, identity: Identity, log: Callable[[str], None]) -> None:
        self.link, self.log = link, log
        self.bar_size = identity.bar_mib << 20
        self.config = ConfigSpace(identity)
        self.registers = bytearray(4096)
        self.resets = 0
        self.interrupts: dict[int, int] = {}
        self.asked: dict[int, Callable[[Message], None]] = {}
        self.number = 0x4000
        self._clear_registers()

    def serve(self) -> None:
        """Handle messages until the other side closes."""
        with contextlib.suppress(EOFError, ConnectionResetError, BrokenPipeError):
            while True:
                message = self._receive()
                if message.flags & 0xF == REPLY:
                    self.asked.pop(message.number)(message)
                else:
                    COMMANDS.get(message.command, Server.unknown)(self, message)

    # -- protocol ---------------------------------------------------------------------------------------------------

    def _receive(self) -> Message:
        files = array.array("i")
        head = b""
        while len(head) < HEADER.size:
            data, ancillary, *unused = self.link.recvmsg(HEADER.size - len(head), socket.CMSG_SPACE(8 * files.itemsize))
            for level, kind, value in ancillary:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    files.frombytes(value[: len(value) - len(value) % files.itemsize])
            head += self._some(data)
        number, command, size, flags, error = HEADER.unpack(head)
        body = b""
        while len(body) < size - HEADER.size:
            body += self._some(self.link.recv(size - HEADER.size - len(body)))
        return Message(number, command, flags, error, body, list(files))

    @staticmethod
    def _some(data: bytes) -> bytes:
        if not data:
            raise EOFError
        return data

    def reply(self, to: Message, body: bytes = b"", error: int = 0) -> None:
        """Answer a request, unless it asked for no answer."""
        if not to.flags & NO_REPLY:
            flags = REPLY | (ERROR if error else 0)
            self.link.sendall(HEADER.pack(to.number, to.command, HEADER.size + len(body), flags, error) + body)

    def ask(self, command: int, body: bytes, then: Callable[[Message], None]) -> None:
        """Send a request of ours. Never wait for its answer here: QEMU may itself be waiting for one of ours."""
        self.number += 1
        self.asked[self.number] = then
        self.link.sendall(HEADER.pack(self.number, command, HEADER.size + len(body), 0, 0) + body)

    # -- requests ---------------------------------------------------------------------------------------------------

    def version(self, message: Message) -> None:
        """Agree on version 0.0 and our limits."""
        able = json.dumps({"capabilities": {"max_msg_fds": 8, "max_data_xfer_size": 1 << 20}})
        self.reply(message, struct.pack("<HH", 0, 0) + able.encode() + b"\0")

    def dma_map(self, message: Message) -> None:
        """Note a range that the IOMMU lets us reach; we use messages, not the memory itself."""
        offset, address, size = struct.unpack_from("<QQQ", message.body, 8)
        self.log(f"map {address:x} size {size:x} offset {offset:x}")
        for file in message.files:
            os.close(file)
        self.reply(message)

    def dma_unmap(self, message: Message) -> None:
        """Note that a range is gone."""
        address, size = struct.unpack_from("<QQ", message.body, 8)
        self.log(f"unmap {address:x} size {size:x}")
        self.reply(message, message.body[:24])

    def device_info(self, message: Message) -> None:
        """A resettable PCI device with nine regions and five kinds of interrupts."""
        self.reply(message, struct.pack("<IIII", 16, 3, 9, 5))

    def region_info(self, message: Message) -> None:
        """BAR 0 and configuration space can be read and written; there is nothing else."""
        (index,) = struct.unpack_from("<I", message.body, 8)
        size = {BAR0: self.bar_size, CONFIG: 4096}.get(index, 0)
        self.reply(message, struct.pack("<IIIIQQ", 32, 3 if size else 0, index, 0, size, index << 40))

    def refused(self, message: Message) -> None:
        """Answer that there is no such thing here."""
        self.reply(message, error=EINVAL)

    def irq_info(self, message: Message) -> None:
        """One INTx, one MSI and one request interrupt, each by eventfd."""
        (index,) = struct.unpack_from("<I", message.body, 8)
        self.reply(message, struct.pack("<IIII", 16, 1, index, 1 if index in (0, MSI, 4) else 0))

    def set_irqs(self, message: Message) -> None:
        """Keep, or forget, the eventfd of an interrupt."""
        flags, index, start, count = struct.unpack_from("<IIII", message.body, 4)
        self.log(f"set_irqs flags {flags:x} index {index} start {start} count {count} fds {len(message.files)}")
        if message.files:
            self.interrupts[index] = message.files[0]
        elif not count and index in self.interrupts:
            os.close(self.interrupts.pop(index))
        self.reply(message)

    def read(self, message: Message) -> None:
        """Read registers or configuration space; what lies behind the register file reads zero."""
        offset, region, count = struct.unpack_from("<QII", message.body)
        memory = self.config.data if region == CONFIG else self.registers
        data = bytes(memory[offset : offset + count])
        self.reply(message, message.body[:16] + data.ljust(count, b"\0"))

    def write(self, message: Message) -> None:
        """Write registers or configuration space, with the side effects that the device has."""
        offset, region, count = struct.unpack_from("<QII", message.body)
        data = message.body[16 : 16 + count]
        if region == CONFIG:
            if self.config.write(offset, data):
                self._reset("FLR")
        elif offset == 4:
            struct.pack_into("<I", self.registers, 4, ~int.from_bytes(data[:4], "little") & 0xFFFFFFFF)
        elif offset >= 0x80 and offset + count <= len(self.registers):
            self.registers[offset : offset + count] = data
        self.reply(message, message.body[:16])
        if region == BAR0 and offset == 0x98 and data[0] & 1:
            self._copy()

    def reset(self, message: Message) -> None:
        """The machine was reset: everything is as at power-on."""
        self.config.data[:] = self.config.initial
        self._reset("RESET")
        self.reply(message)

    def unknown(self, message: Message) -> None:
        """Say that a command is not known here."""
        self.log(f"unknown command {message.command}")
        self.reply(message, error=ENOSYS)

    # -- the device -------------------------------------------------------------------------------------------------

    def _clear_registers(self) -> None:
        self.registers[:] = bytes(len(self.registers))
        struct.pack_into("<I", self.registers, 0, MAGIC)

    def _reset(self, kind: str) -> None:
        self.resets += 1
        self.log(f"{kind} {self.resets}")
        self._clear_registers()

    def _copy(self) -> None:
        source, target, length = struct.unpack_from("<QQQ", self.registers, 0x80)

        def finish(state: int) -> None:
            struct.pack_into("<I", self.registers, 0x98, state)
            if MSI in self.interrupts:
                os.write(self.interrupts[MSI], struct.pack("<Q", 1))

        def written(answer: Message) -> None:
            self.log(f"dma_write {target:x} error {answer.error}")
            finish(0x80000000 | answer.error if answer.flags & ERROR else 2)

        def got(answer: Message) -> None:
            self.log(f"dma_read {source:x} error {answer.error}")
            if answer.flags & ERROR:
                finish(0x80000000 | answer.error)
            else:
                self.ask(DMA_WRITE, struct.pack("<QQ", target, length) + answer.body[16 : 16 + length], written)

        self.ask(DMA_READ, struct.pack("<QQ", source, length), got)


COMMANDS: dict[int, Callable[[Server, Message], None]] = {
    1: Server.version,
    2: Server.dma_map,
    3: Server.dma_unmap,
    4: Server.device_info,
    5: Server.region_info,
    6: Server.refused,
    7: Server.irq_info,
    8: Server.set_irqs,
    9: Server.read,
    10: Server.write,
    13: Server.reset,
}


def _configuration(identity: Identity) -> bytes:
    """Return configuration space at power-on (PCI Express Base Specification, chapter 7)."""
    data = bytearray(4096)

    def put(offset: int, form: str, *values: int) -> None:
        struct.pack_into("<" + form, data, offset, *values)

    put(0x00, "HHHH", identity.vendor, identity.device, 0, 0x10)
    put(0x08, "I", identity.pci_class << 8 | 0xA1)
    put(0x0E, "B", 0x80 if identity.multifunction else 0)
    put(0x2C, "HH", identity.vendor, 0x1234)
    put(0x34, "B", PM)
    put(0x3D, "B", 1)
    put(PM, "BBHI", 1, EXPRESS, 3, 0x8)
    put(EXPRESS, "BBH", 0x10, MSI_CAPABILITY, 2)
    put(EXPRESS + 4, "I", 1 << 28 | 1 << 15 | 1)  # function level reset
    put(EXPRESS + 12, "I", 0x11 | 1 << 4)
    put(EXPRESS + 18, "H", 0x11)
    put(MSI_CAPABILITY, "BBHIIH", 5, 0, 0x80, 0, 0, 0)  # 64 bit, one vector
    return bytes(data)


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="serve a PCI function by vfio-user")
    parser.add_argument("socket", type=Path)
    parser.add_argument("log", type=Path)
    for name in ("vendor", "device", "pci_class"):
        parser.add_argument(name, type=lambda text: int(text, 16))
    parser.add_argument("--bar-mib", type=int, default=16)
    parser.add_argument("--multifunction", action="store_true")
    return parser.parse_args()


def main() -> None:
    """Serve one connection on the socket."""
    given = arguments()
    identity = Identity(given.vendor, given.device, given.pci_class, given.bar_mib, given.multifunction)
    given.socket.unlink(missing_ok=True)
    with open(given.log, "a", encoding="ascii", buffering=1) as log, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(given.socket))
        listener.listen(1)
        link = listener.accept()[0]
        with link:
            Server(link, identity, lambda text: print(text, file=log)).serve()


if __name__ == "__main__":
    main()
