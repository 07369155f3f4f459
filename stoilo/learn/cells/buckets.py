"""What members of a cell add up while backward goes on: gradients, or their slices.

`Buckets`: every member has all parameters and gets all sums. `Slices`: it has a slice of
each, and the whole ones of a layer only while that computes.
"""

from __future__ import annotations

import ctypes
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from stoilo.core.errors import UsageError
from stoilo.learn.cells.links import Links
from stoilo.learn.kernels import torch_models

_kernels: Any = torch_models  # untyped: they travel as source
_storage: Any = torch._C.TensorBase.untyped_storage  # noqa: SLF001 - a cell's seal is above it
_MMAP_THRESHOLD = -3  # malloc.h: what is larger goes back to the system when freed
_FLYING = 2  # sums of slices that are waited for while more gradients come
_RECENT = 2  # layers that are whole in backward, where not all of their gradients come


class _Bucket:
    """Neighbours' gradients in one vector."""

    def __init__(self, parameters: Sequence[Tensor], flags: int) -> None:
        sizes = [p.numel() for p in parameters]
        kind = _kernels.widen(parameters[0].new_empty(0)).dtype
        self.flat = torch.zeros(sum(sizes) + flags, dtype=kind)
        parts = torch.split(self.flat, [*sizes, flags])
        self.places = {
            p: part.view(p.shape) for p, part in zip(parameters, parts, strict=False)
        }
        self.flags = parts[-1]
        self.missing: set[Tensor] = set()


class Buckets:
    """Sums of gradients over members: a bucket leaves as soon as all of it is there.

    Args:
        parameters: the same at all members; later ones are expected first.
        most: bytes of a bucket; one parameter may be larger.
        group: the members.
    """

    def __init__(
        self, parameters: Sequence[Tensor], most: int, group: dist.ProcessGroup
    ) -> None:
        self._group, self._numbers = group, {p: n for n, p in enumerate(parameters)}
        cut = [*_cut(parameters[::-1], most)]
        self._buckets = [_Bucket(row, 0) for row in cut[:-1]]
        # The last one also says whose parameters got any gradient.
        self._buckets.append(_Bucket(cut[-1], len(parameters)))
        self._of = {p: bucket for bucket in self._buckets for p in bucket.places}
        hooked: Any = parameters  # torch has no types for it
        self._hooks = [p.register_post_accumulate_grad_hook(self._note) for p in hooked]
        self.sent: list[Any] = []  # what is under way

    def begin(self) -> None:
        """Expect the gradients of one backward."""
        self.sent = []
        for bucket in self._buckets:
            bucket.flat.zero_()
            bucket.missing = {*bucket.places}

    def _note(self, p: Tensor) -> None:
        bucket = self._of[p]
        bucket.places[p].copy_(_kernels.dense(p.grad))
        p.grad = None  # its memory
        bucket.missing.discard(p)
        self._buckets[-1].flags[self._numbers[p]] = 1
        self._send(lambda bucket: not bucket.missing)

    def _send(self, is_ready: Callable[[_Bucket], bool]) -> None:
        # In one order at all members, whatever order gradients come in.
        while len(self.sent) < len(self._buckets):
            bucket = self._buckets[len(self.sent)]
            if not is_ready(bucket):
                return
            work = dist.all_reduce(bucket.flat, group=self._group, async_op=True)
            self.sent.append(work)

    def finish(self) -> None:
        """Send what never got a gradient too, and give each parameter the sum."""
        self._send(lambda _: True)
        for work in self.sent:
            work.wait()
        used = self._buckets[-1].flags
        for p, bucket in self._of.items():
            is_used = bool(used[self._numbers[p]])
            p.grad = bucket.places[p].to(p.dtype) if is_used else None

    def close(self) -> None:
        """Leave the parameters alone."""
        for hook in self._hooks:
            hook.remove()


def _cut(parameters: Iterable[Tensor], most: int) -> Iterator[list[Tensor]]:
    """Yield neighbours of one type, of so many bytes together."""
    row: list[Tensor] = []
    for p in parameters:
        size = sum(one.nbytes for one in row) + p.nbytes
        if row and (size > most or p.dtype != row[0].dtype):
            yield row
            row = []
        row.append(p)
    yield row


class _Layer:
    """Parameters that are whole at the same time: while `module` computes."""

    def __init__(self, number: int, parameters: Sequence[nn.Parameter]) -> None:
        self.number, self.parameters = number, parameters
        self.wholes: dict[Tensor, Tensor] = {}  # vectors; in forward and in backward
        self.missing: set[Tensor] = set()  # whose gradients have not come yet
        self.is_open = self.is_used = False


class Slices:
    """A member's slices of all parameters, of which the model computes with whole ones.

    Between passes a parameter's data is the member's slice, a vector, and so are its
    gradient and what an optimiser keeps. In a pass it has its own form: in its layer, the
    numbers of all members; outside, one NaN that stands for each. What backward needs of a
    whole one is noted by place and collected again.

    The researcher's class runs meanwhile, and in a cell no kernel layer holds it. It meets
    ordinary tensors alone. Nothing here frees or resizes memory that a tensor stands on, as
    FSDP2 does: what the class keeps of a layer stays as it was, and costs its memory. Hooks
    and slices are reached by private names and closures, which guards give to no task.

    Args:
        model: its trained parameters may be empty; the rest is taken from it.
        parameters: name → array of what is trained; read where it lies, never copied whole.
        links: to the other members, whose passes call the same layers in the same order.
    """

    def __init__(
        self, model: nn.Module, parameters: Mapping[str, Any], links: Links
    ) -> None:
        # glibc would keep what layers give back: seen, 2.9 models' memory in place of .45.
        with suppress(AttributeError, OSError):
            ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, 1 << 18)
        self._links, self._forms = links, dict[Tensor, torch.Size]()
        self._own, self._sums = dict[Tensor, Tensor](), dict[Tensor, Tensor]()
        self._names = dict(model.named_parameters())
        for name, p in self._names.items():
            given: Tensor = torch.as_tensor(parameters[name]) if p.requires_grad else p
            self._forms[p], p.data = given.shape, self._cut(given).to(p.dtype)
        self._layers: list[_Layer] = []
        self._of: dict[Tensor, _Layer] = {}
        self._hooks: list[Any] = []
        self._places: dict[int, Tensor] = {}  # memory of what is whole → its parameter
        self._recent, self._flying = list[_Layer](), list[Any]()
        self._saving = saved_tensors_hooks(self._pack, self._unpack)
        self._called = 0  # stands for the layers collected in a pass, and their order
        for block in _blocks(model):
            layer = self._add(block.parameters())
            before, after = self._before(layer), self._after(layer)
            self._hooks += [
                block.register_forward_pre_hook(before, prepend=True),
                # Checkpointed layers end in an exception when enough is computed again.
                block.register_forward_hook(after, always_call=True),
            ]
        self._rest = self._add(p for p in model.parameters() if p not in self._of)

    def _add(self, parameters: Iterable[nn.Parameter]) -> _Layer:
        layer = _Layer(len(self._layers) + 1, [*parameters])
        self._layers.append(layer)
        for p in layer.parameters:
            self._of[p] = layer
            if p.requires_grad:
                noting: Any = p  # torch has no types for it
                self._hooks.append(
                    noting.register_post_accumulate_grad_hook(self._note)
                )
        return layer

    def _cut(self, whole: Tensor) -> Tensor:
        """Return this member's slice: of one length at all members, zeros behind the end."""
        length = max(1, -(-whole.numel() // self._links.size))
        own = torch.zeros(length, dtype=whole.dtype)
        piece = whole.detach().reshape(-1)[self._links.rank * length :][:length]
        own[: len(piece)] = piece
        return own

    def begin(self) -> None:
        """Let a forward pass begin; backward belongs to it."""
        self._sums, self._called = {}, 0
        for layer in self._layers:
            layer.missing = {p for p in layer.parameters if p.requires_grad}
            layer.is_used = False
        for p in self._of:
            self._own[p] = p.data
            self._empty(p)
        self._saving.__enter__()
        self._open(self._rest)

    def leave(self) -> None:
        """End the forward pass, and without gradients all of it."""
        self._shut(self._rest)
        self._saving.__exit__()
        if not torch.is_grad_enabled():
            self.finish()

    def _empty(self, p: Tensor) -> None:
        p.data = torch.tensor(math.nan).to(p.dtype).expand(self._forms[p])

    def _before(self, layer: _Layer) -> Callable[..., None]:
        return lambda *_: self._open(layer)

    def _after(self, layer: _Layer) -> Callable[..., None]:
        return lambda *_: self._shut(layer)

    def _open(self, layer: _Layer) -> None:
        layer.is_open = layer.is_used = True
        self._collect(layer)
        for p, whole in layer.wholes.items():
            p.data = whole[: self._forms[p].numel()].view(self._forms[p])

    def _shut(self, layer: _Layer) -> None:
        layer.is_open = False
        for p in layer.parameters:
            self._own[p] = self._cut(p.data)  # its own forward may have changed it
            self._empty(p)
        self._drop(layer)

    def _collect(self, layer: _Layer) -> None:
        if layer.wholes:
            return
        self._called, works = zlib.crc32(layer.number.to_bytes(4), self._called), []
        for p in layer.parameters:
            own = self._own[p]
            whole = torch.empty(len(own) * self._links.size, dtype=own.dtype)
            layer.wholes[p], self._places[_storage(whole).data_ptr()] = whole, p
            works.append(
                dist.all_gather_single(whole, own, self._links.group, async_op=True)
            )
        for work in works:
            work.wait()

    def _drop(self, layer: _Layer) -> None:
        for whole in layer.wholes.values():
            del self._places[_storage(whole).data_ptr()]
        layer.wholes = {}

    def _pack(self, tensor: Tensor) -> tuple[Tensor, int, tuple[Any, ...] | None]:
        """Return what backward keeps: of a whole parameter, or a view of one, the place."""
        is_plain = tensor.layout is torch.strided and not tensor.is_conj()
        p = self._places.get(_storage(tensor).data_ptr()) if is_plain else None
        if p is None or p.dtype != tensor.dtype:
            return tensor.detach(), tensor._version, None  # noqa: SLF001 - torch's own check
        place = tensor.size(), tensor.stride(), tensor.storage_offset()
        return p, p._version, place  # noqa: SLF001 - as above

    def _unpack(self, kept: tuple[Tensor, int, tuple[Any, ...] | None]) -> Tensor:
        tensor, version, place = kept
        if tensor._version != version:  # noqa: SLF001 - as above
            raise RuntimeError("a tensor that backward needs was changed in place")
        if place is None:
            return tensor
        layer = self._of[tensor]
        self._collect(layer)
        self._recent = [one for one in self._recent if one is not layer] + [layer]
        for old in self._recent[:-_RECENT]:
            if not old.is_open:
                self._drop(old)
        return layer.wholes[tensor].as_strided(*place)

    def _note(self, p: Tensor) -> None:
        layer = self._of[p]
        if not layer.is_used:
            raise UsageError(
                "STO-T040",
                "a layer in a ModuleList or Sequential is used without being called",
                hint="call it, or train without shard",
            )
        slope = _kernels.widen(_kernels.dense(p.grad)).reshape(-1)
        p.grad = None  # its memory
        own = slope.new_zeros(len(self._own[p]))
        padded = slope  # to the same length at all members
        if missing := len(own) * self._links.size - len(slope):
            padded = torch.cat([slope, slope.new_zeros(missing)])
        work = dist.reduce_scatter_single(
            own, padded, group=self._links.group, async_op=True
        )
        self._flying.append((p, own, work))
        while len(self._flying) > _FLYING:
            self._land()
        layer.missing.discard(p)
        if not (layer.missing or layer.is_open):
            self._drop(layer)

    def _land(self) -> None:
        p, own, work = self._flying.pop(0)
        work.wait()
        self._sums[p] = self._sums[p] + own if p in self._sums else own

    def finish(self) -> None:
        """End a pass: parameters are slices again, and have slices of gradients.

        Raises:
            UsageError: ``STO-T040``, members did not do the same.
        """
        while self._flying:
            self._land()
        told = torch.tensor([self._called, -self._called])
        dist.all_reduce(told, dist.ReduceOp.MAX, self._links.group)
        if told.sum():
            raise UsageError("STO-T040", "members did not call the same layers in turn")
        for layer in self._layers:
            self._drop(layer)
        for p, own in self._own.items():
            p.data = own
            p.grad = self._sums[p].to(p.dtype) if p in self._sums else None
        self._recent, self._sums = [], {}

    def join(self, found: Mapping[str, Any]) -> dict[str, Any]:
        """Return arrays of which members have slices as they are whole, at rank 0 alone."""
        whole = {}
        for name, array in found.items():
            own, form = torch.from_numpy(array), self._forms[self._names[name]]
            if self._links.rank:
                dist.gather(own, group=self._links.group, group_dst=0)
                continue
            flat = own.new_empty(len(own) * self._links.size)
            pieces = [*torch.split(flat, len(own))]
            dist.gather(own, pieces, group=self._links.group, group_dst=0)
            whole[name] = flat[: form.numel()].view(form).numpy()
        return whole

    def close(self) -> None:
        """Leave the model alone."""
        for hook in self._hooks:
            hook.remove()
        vars(self).clear()  # a ring by its own methods, too: see `Data`


def _blocks(model: nn.Module) -> Iterator[nn.Module]:
    """Yield the outermost members of containers, where their parameters are all their own."""

    def walk(module: nn.Module) -> Iterator[nn.Module]:
        for child in module.children():
            is_called = not isinstance(child, nn.ModuleList | nn.ModuleDict)
            if is_called and isinstance(module, nn.ModuleList | nn.Sequential):
                yield child
            else:
                yield from walk(child)

    for block in walk(model):
        own, inside = {*block.parameters()}, {*block.modules()}
        others = (
            m.parameters(recurse=False) for m in model.modules() if m not in inside
        )
        if own and own.isdisjoint(chain.from_iterable(others)):
            yield block
