"""Live bytes of one training step, followed storage by storage.

A storage is born when an operation returns a tensor on it for the first time and dies when its last reference goes. Views and
in-place operations add nothing. What the tensors would hold on a GPU is counted exactly, as in torch.cuda.memory_allocated without
the allocator's rounding to 512 bytes.
"""
import bisect
import weakref

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

aten = torch.ops.aten


class Storage:
    __slots__ = ('bytes', 'dtype', 'shape', 'op', 'module', 'phase', 'kind', 'born', 'died', 'node', 'place')

    def line(self, times=1):
        return {'bytes': self.bytes * times, 'dtype': str(self.dtype)[6:], 'shape': list(self.shape), 'op': self.op, 'module': self.module,
                'phase': self.phase, **({'node': self.node} if self.node else {}), **({'kind': self.kind} if self.kind else {})}


class Ledger(TorchDispatchMode):
    """Enter it inside FakeTensorMode; `phase` and `watch(model)` say where an operation belongs."""

    def __init__(self, transients=None, device='cuda'):
        super().__init__()
        self.device = device
        self.alive, self.events, self.operations = {}, [], []
        self.transients = transients or {}
        self.phase, self.stack, self.marks, self.pending = 'build', [], [], None

    # -- where we are -------------------------------------------------------------------------------------------------------
    def watch(self, model):
        for name, module in model.named_modules():
            module.register_forward_pre_hook(lambda m, a, name=name: self._push(name))
            module.register_forward_hook(lambda m, a, o: self._pop(), always_call=True)

    def own(self, module, name):
        """What a block or the final norm receives counts as that module's: it is the one that keeps it."""
        def claim(m, args, kwargs):
            x = args[0] if args else kwargs.get('hidden_states')
            if isinstance(x, torch.Tensor) and (s := self.of(x)) and s.phase == 'forward' and self.phase == 'forward': s.module = name
        module.register_forward_pre_hook(claim, with_kwargs=True)

    def _push(self, name):
        self.stack.append(name)
        self.marks.append((torch.autograd._get_sequence_nr(), name))

    def _pop(self):
        if self.stack: self.stack.pop()
        self.marks.append((torch.autograd._get_sequence_nr(), self.stack[-1] if self.stack else ''))

    def module_of(self, sequence):
        at = bisect.bisect_right(self.marks, sequence, key=lambda mark: mark[0])
        return self.marks[at - 1][1] if at else ''

    # -- what lives ---------------------------------------------------------------------------------------------------------
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        node = torch._C._current_autograd_node()
        self._settle()
        out = func(*args, **(kwargs or {}))
        name = str(func).removesuffix('.default')
        self.operations.append(name)
        born = [s for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor) and leaf.device.type == self.device if (s := self._born(leaf, name, node))]
        extra = self.transients.get(func)
        if extra and (size := extra(args, out)):
            s = self._make(size, torch.uint8, (size,), name + ' (workspace)', node)
            # the workspace lives beside the outputs, for the duration of the operation
            self.events += [(+1, s), (-1, s)]
        # The engine adds gradients that meet in one node. For plain tensors it adds in place when it holds the only reference;
        # for tensor subclasses, fake ones too, it never does. Undo that: the sum takes over the first addend's storage. It never
        # does for a view either, whose base refers to the storage too (input_buffer.cpp, can_accumulate_inplace). The formulas
        # of the nodes at hand add nothing themselves; a recomputed forward does, with gradients on.
        sums = func is aten.add.Tensor and self.phase == 'backward' and not torch.is_grad_enabled() and len(born) == 1
        if sums and not args[0]._is_view():
            old = self.alive.get(args[0].untyped_storage()._cdata)
            if old: self.pending = (old, born[0], len(self.events))
        return out

    def _settle(self):
        if self.pending:
            old, new, at = self.pending
            self.pending = None
            gone = next((i for i in range(at, len(self.events)) if self.events[i] == (-1, old)), None)
            if gone is not None and old.bytes == new.bytes:
                self.events[gone] = (0, old)
                self.events[self.events.index((+1, new), max(0, at - 4))] = (0, new)

    def _make(self, size, dtype, shape, op, node):
        s = Storage()
        s.bytes, s.dtype, s.shape, s.op, s.phase, s.kind = size, dtype, tuple(shape), op, self.phase, None
        s.born, s.died, s.node = len(self.events), None, None
        s.module = self.stack[-1] if self.stack else ''
        if node is not None:
            s.node = node.name()
            if not self.stack: s.module = self.module_of(node._sequence_nr())
        s.place = s.module                              # where it was made; `module` may become the module that keeps it
        return s

    def _born(self, tensor, op, node):
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self.alive: return None
        s = self._make(storage.nbytes(), tensor.dtype, tensor.shape, op, node)
        self.alive[key] = s
        self.events.append((+1, s))
        weakref.finalize(storage, self._dead, key, s).atexit = False
        return s

    def _dead(self, key, s):
        if self.alive.get(key) is s: del self.alive[key]
        s.died = len(self.events)
        self.events.append((-1, s))

    def of(self, tensor):
        return self.alive.get(tensor.untyped_storage()._cdata)

    # -- what it came to ----------------------------------------------------------------------------------------------------
    def mark(self):
        self._settle()
        return len(self.events)

    def live_at(self, position):
        alive = {}
        for sign, s in self.events[:position]:
            if sign > 0: alive[id(s)] = s
            elif sign < 0: alive.pop(id(s), None)
            elif s.died is None or s.died >= position: alive[id(s)] = s
            else: alive.pop(id(s), None)
        return list(alive.values())

    def peak(self, start, end):
        """Highest live bytes in events[start:end] and the position just after it was reached."""
        live = sum(sign * s.bytes for sign, s in self.events[:start])
        best, where = live, start
        for position in range(start, end):
            sign, s = self.events[position]
            live += sign * s.bytes
            if live > best: best, where = live, position + 1
        return best, where

    def live_bytes(self, position):
        return sum(sign * s.bytes for sign, s in self.events[:position])
