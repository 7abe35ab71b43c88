"""A CUDA device that is not there: fake tensors on cuda:0 through forward, backward and optimizer on a machine without a GPU.

Needs a PyTorch build with CUDA compiled in. FakeTensorMode does nearly all of it. Three things ask for a device all the same:
the autograd engine asks whether the device has a context (answered: no), autocast and Transformers ask what the device can do
(answered: compute capability 9.0, 16-bit floats), and two dispatchers choose kernels in C++ (see kernels.py).
"""
import ctypes
import os

import torch

_ANSWER = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_int8)(lambda hooks, index: False)
_SLOT = 4                                    # hasPrimaryContext in the table of virtual functions of CUDAHooksInterface
_EXPECTED = b'\x40\x0f\xbe\xfe\xe9'          # first bytes of that function in the pinned x86-64 build: sign-extend the index, jump


def install():
    if torch.cuda.is_available(): return
    library = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), 'lib', 'libtorch_cpu.so'))
    hooks = library._ZN2at6detail12getCUDAHooksEv
    hooks.restype = ctypes.c_void_p
    slot = ctypes.c_void_p.from_address(hooks()).value + 8 * _SLOT
    if ctypes.string_at(ctypes.c_void_p.from_address(slot).value, 5) != _EXPECTED:
        raise SystemExit('fake_cuda: this PyTorch build is not the pinned one (requirements.txt)')
    page = slot & ~4095
    if ctypes.CDLL(None, use_errno=True).mprotect(ctypes.c_void_p(page), ctypes.c_size_t(8192), 3): raise OSError('mprotect')
    ctypes.c_void_p.from_address(slot).value = ctypes.cast(_ANSWER, ctypes.c_void_p).value
    torch.autograd.set_multithreading_enabled(False)
    from torch.cuda.amp import common
    common.amp_definitely_not_available = lambda: False
    torch.cuda.is_bf16_supported = lambda *a, **k: True
    torch.cuda.get_device_capability = lambda *a, **k: (9, 0)
    torch.cuda.current_device = lambda: 0
    torch.nn.Module._apply = _apply


def _apply(module, convert, recurse=True):
    """Module.to and friends with plain replacement: PyTorch would swap fake tensors in place, which the ledger's weak references forbid."""
    if recurse:
        for child in module.children(): child._apply(convert)
    for name, p in module._parameters.items():
        if p is None: continue
        with torch.no_grad(): new = convert(p)
        if new is not p: module._parameters[name] = torch.nn.Parameter(new.detach(), p.requires_grad)
    for name, b in module._buffers.items():
        if b is not None: module._buffers[name] = convert(b)
    return module
