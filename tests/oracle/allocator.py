#!/usr/bin/env python3
"""What PyTorch's caching allocator holds while the storages of a ledger come and go: torch.cuda.max_memory_reserved.

usage: allocator.py     checks itself on cases worked out by hand; needs no PyTorch

One stream and no options of PYTORCH_CUDA_ALLOC_CONF, as in c10/cuda/CUDACachingAllocator.cpp: sizes are rounded to 512 bytes; up to
1 MiB they come from segments of 2 MiB, below 10 MiB from segments of 20 MiB, above from segments of their own, rounded to 2 MiB. A request
takes the smallest free block that fits, of equal ones the lowest; what is left over becomes a block of its own if it is large enough (512
bytes, for large requests more than 1 MiB). Free neighbours of one segment join. Segments stay: the card is taken to be large enough.
"""
import bisect

MIB = 1 << 20
SMALL, SMALL_SEGMENT, MIDDLE, MIDDLE_SEGMENT = MIB, 2 * MIB, 10 * MIB, 20 * MIB


def rounded(size, to): return -(-size // to) * to


class Block:
    __slots__ = ('address', 'size', 'small', 'free', 'before', 'after')

    def __init__(self, address, size, small, before=None, after=None):
        self.address, self.size, self.small, self.free, self.before, self.after = address, size, small, False, before, after


class Allocator:
    def __init__(self):
        self.pools = {True: [], False: []}                  # (size, address, block) of the free ones
        self.reserved = self.allocated = self.most_allocated = 0

    def take(self, size):
        size = rounded(max(size, 1), 512)
        small = size <= SMALL
        pool = self.pools[small]
        at = bisect.bisect_left(pool, (size, 0))
        block = pool.pop(at)[2] if at < len(pool) else self._segment(size, small)
        block.free = False
        left = block.size - size
        if left >= 512 if small else left > SMALL: self._split(block, size)
        self.allocated += block.size
        self.most_allocated = max(self.most_allocated, self.allocated)
        return block

    def give(self, block):
        self.allocated -= block.size
        for other in (block.before, block.after):
            if other is None or not other.free: continue
            self._withdraw(other)
            block.size += other.size
            if other is block.before: block.before = other.before
            else: block.after = other.after
            block.address = min(block.address, other.address)
        if block.before is not None: block.before.after = block
        if block.after is not None: block.after.before = block
        self._offer(block)

    def _segment(self, size, small):
        length = SMALL_SEGMENT if small else MIDDLE_SEGMENT if size < MIDDLE else rounded(size, 2 * MIB)
        self.reserved += length                             # later segments lie higher
        return Block(self.reserved - length, length, small)

    def _split(self, block, size):
        rest = Block(block.address + size, block.size - size, block.small, block, block.after)
        if block.after is not None: block.after.before = rest
        block.size, block.after = size, rest
        self._offer(rest)

    def _offer(self, block):
        block.free = True
        bisect.insort(self.pools[block.small], (block.size, block.address, block))

    def _withdraw(self, block):
        pool = self.pools[block.small]
        del pool[bisect.bisect_left(pool, (block.size, block.address))]


def replay(events, start, marks):
    """What is held at each of the marks {name: position}, in bytes. What is alive at `start` counts as it is: its segments are full."""
    at = {position: name for name, position in marks.items()}
    allocator, blocks, heirs, held = Allocator(), {}, [], {}
    alive = {}
    for sign, storage in events[:start]:
        if sign > 0: alive[id(storage)] = storage.bytes
        elif sign < 0: alive.pop(id(storage), None)
    standing = sum(alive.values())
    for position, (sign, storage) in enumerate(events[start:], start + 1):
        key = id(storage)
        if sign > 0: blocks[key] = allocator.take(storage.bytes)
        elif sign < 0:
            if key in blocks: allocator.give(blocks.pop(key))
        elif key not in blocks: heirs.append(key)           # a sum in place: the new storage comes first, then the one it takes over
        elif heirs: blocks[heirs.pop(0)] = blocks.pop(key)
        else: allocator.give(blocks.pop(key))
        if position in at: held[at[position]] = {'reserved': standing + allocator.reserved, 'allocated': standing + allocator.most_allocated}
    return held


def check():
    a = Allocator()
    first = a.take(1)                                       # a small request opens 2 MiB
    assert (a.reserved, a.allocated) == (2 * MIB, 512)
    a.give(first)
    assert a.pools[True][0][0] == 2 * MIB                   # and its rest joins it again
    a.take(2 * MIB)                                         # a middle one opens 20 MiB, of which 18 serve others
    a.take(9 * MIB)
    assert a.reserved == 22 * MIB
    large = a.take(31 * MIB)                                # a large one has a segment of its own, rounded to 2 MiB
    assert a.reserved == 54 * MIB and large.size == 32 * MIB        # whose last MiB is too little to be split off
    a.give(large)
    part = a.take(20 * MIB)                                 # a smaller request splits it
    assert (a.reserved, part.size) == (54 * MIB, 20 * MIB)
    a.take(32 * MIB)                                        # and the large one needs a new segment while that lives
    assert a.reserved == 86 * MIB
    a.give(part)
    assert a.take(32 * MIB).size == 32 * MIB and a.reserved == 86 * MIB
    print('allocator: as worked out by hand')


if __name__ == '__main__': check()
