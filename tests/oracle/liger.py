"""Liger's kernels over fake tensors: its autograd functions run as they are and allocate and save what they do on a device; the Triton
kernels inside them, which only write into tensors that exist, do nothing.

Answers the questions that a fake tensor cannot: how many labels count (one), whether their values are in range (yes), whether the loss's gradient
is one (no: what was made in forward is then multiplied in place), how many multiprocessors the device has.
"""
import contextlib
import importlib
import sys
import types

import torch
from torch._subclasses.fake_tensor import FakeTensor

MULTIPROCESSORS = 132                        # H100 SXM


def install():
    import triton
    available, torch.cuda.is_available = torch.cuda.is_available, lambda: True          # Liger chooses its device when it is imported
    properties = types.SimpleNamespace(multi_processor_count=MULTIPROCESSORS, major=9, minor=0, name='NVIDIA H100 80GB HBM3', total_memory=80 << 30)
    torch.cuda.get_device_properties = lambda *a, **k: properties
    triton.runtime.jit.JITFunction.run = lambda *a, **k: None
    item, equal = torch.Tensor.item, torch.equal
    torch.Tensor.item = lambda x: 1 if isinstance(x, FakeTensor) else item(x)
    torch.equal = lambda a, b: False if isinstance(a, FakeTensor) else equal(a, b)
    FakeTensor.__bool__ = lambda x: True
    import liger_kernel.transformers.monkey_patch  # noqa: F401
    for name, module in list(sys.modules.items()):
        if name.startswith('liger_kernel.ops') and hasattr(module, 'device_context'): module.device_context = contextlib.nullcontext
    torch.cuda.is_available = available


@contextlib.contextmanager
def applied(config, cross_entropy):
    """Transformers' modules of one architecture with Liger's in their place, as its Trainer integration puts them there."""
    from liger_kernel.transformers.monkey_patch import MODEL_TYPE_TO_APPLY_LIGER_FN
    kind = config.model_type
    module = importlib.import_module(f'transformers.models.{kind}.modeling_{kind}')
    names, forwards = dict(vars(module)), {c: c.forward for c in vars(module).values() if isinstance(c, type) and 'forward' in vars(c)}
    loss = torch.nn.functional.cross_entropy
    materialised = cross_entropy == 'full_logits'
    MODEL_TYPE_TO_APPLY_LIGER_FN[kind](cross_entropy=materialised, fused_linear_cross_entropy=not materialised)
    try: yield
    finally:
        vars(module).update(names)
        for c, forward in forwards.items(): c.forward = forward
        torch.nn.functional.cross_entropy = loss
