"""The links between members of a cell: one gloo group on one network.

gloo's links have no TLS and no token: whoever reaches their ports can read and write what
members say to each other. So they listen on the address that the operator names, and
nowhere else; `stoilo learn cell` wants to hear that its network is private.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist

from stoilo.core.errors import UsageError
from stoilo.core.listen import bracket, listen

_SIOCGIFADDR = 0x8915  # linux/sockios.h: the IPv4 address of an interface


@dataclass(frozen=True)
class Links:
    """One member's links to all of its cell."""

    rank: int
    size: int
    # A peer's death raises in every call at once, its silence after `limit_s`
    group: dist.ProcessGroup
    limit_s: float
    folder: Path | None = None  # of this member, for what a layout keeps over a kill


def open_door(host: str) -> socket.socket:
    """Return where rank 0 will be found by the others: a port of `host`."""
    door = listen(f"{bracket(host)}:0")
    door.listen()
    return door


def form_links(
    rank: int,
    hosts: list[str],
    port: int,
    door: socket.socket | None,
    limit_s: float,
) -> Links:
    """Form the group with the others; all of them call it.

    Args:
        rank: of this member.
        hosts: of all, by rank, as the others reach them.
        port: of rank 0's door.
        door: rank 0's own; None elsewhere.
        limit_s: how long this, and each later call, may take.

    Raises:
        RuntimeError: somebody did not come in time.
        UsageError: ``STO-R090``, the address is none of this machine's.
    """
    os.environ["GLOO_SOCKET_IFNAME"] = _find_interface(hosts[rank])
    limit = timedelta(seconds=limit_s)
    store = dist.TCPStore(  # type: ignore[attr-defined]  # of its C part
        hosts[0],
        port,
        len(hosts),
        is_master=door is not None,
        timeout=limit,
        wait_for_workers=False,
        # torch's own would listen on every address of the machine.
        master_listen_fd=None if door is None else door.detach(),
    )
    dist.init_process_group(
        "gloo", store=store, rank=rank, world_size=len(hosts), timeout=limit
    )
    group = dist.group.WORLD
    if group is None:
        raise RuntimeError("gloo formed no group")
    return Links(rank, len(hosts), group, limit_s)


def _find_interface(host: str) -> str:
    """Return the name of the interface whose address is `host`; loopback's has many."""
    wanted = socket.gethostbyname(host)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            try:
                told = fcntl.ioctl(
                    asked, _SIOCGIFADDR, struct.pack("256s", name.encode())
                )
            except OSError:  # it has no address
                continue
            found = socket.inet_ntoa(told[20:24])
            if found == wanted or (found[:4] == wanted[:4] == "127."):
                return name
    raise UsageError(
        "STO-R090",
        f"{host} is no IPv4 address of this machine",
        hint="links between members need one: name it with --listen",
    )
