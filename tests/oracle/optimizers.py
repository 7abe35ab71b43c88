#!/usr/bin/env python3
"""What real optimizers keep and make: bytes of their states and of the temporaries of a step, for one small Llama. Writes ../tables/optimizers.json.

Needs, besides requirements.txt: galore-torch==1.0 apollo-torch==1.0.3 lomo-optim==0.1.1 adam-mini==1.1.1 came-pytorch==0.1.3 lion-pytorch==0.2.5 torchao==0.14.1
The tensors are real, on the CPU: nothing here depends on the device but kernels' workspaces.
"""
import importlib.metadata
import json
import pathlib
import warnings
import weakref

import torch

from ledger import Ledger

CONFIG = {'model_type': 'llama', 'hidden_size': 256, 'intermediate_size': 704, 'num_hidden_layers': 2, 'num_attention_heads': 8,
          'num_key_value_heads': 4, 'vocab_size': 1024, 'tie_word_embeddings': False}
TYPES = {'fp32': torch.float32, 'bf16': torch.bfloat16}


def parameters(dtype):
    """Names and parameters in the order of the model."""
    h, f, v, kv = CONFIG['hidden_size'], CONFIG['intermediate_size'], CONFIG['vocab_size'], 128
    shapes = {'model.embed_tokens.weight': (v, h)}
    for i in range(CONFIG['num_hidden_layers']):
        at = f'model.layers.{i}.'
        shapes |= {at + 'self_attn.q_proj.weight': (h, h), at + 'self_attn.k_proj.weight': (kv, h), at + 'self_attn.v_proj.weight': (kv, h),
                   at + 'self_attn.o_proj.weight': (h, h), at + 'mlp.gate_proj.weight': (f, h), at + 'mlp.up_proj.weight': (f, h),
                   at + 'mlp.down_proj.weight': (h, f), at + 'input_layernorm.weight': (h,), at + 'post_attention_layernorm.weight': (h,)}
    shapes |= {'model.norm.weight': (h,), 'lm_head.weight': (v, h)}
    return {name: torch.nn.Parameter(torch.randn(shape, dtype=dtype) * 0.02) for name, shape in shapes.items()}


def grouped(named):
    """The Trainer's groups: with and without weight decay."""
    return [{'params': [p for p in named.values() if p.ndim > 1]}, {'params': [p for p in named.values() if p.ndim < 2]}]


def projected(named, **settings):
    targets = [p for n, p in named.items() if 'attn' in n or 'mlp' in n]
    return [{'params': [p for p in named.values() if not any(p is t for t in targets)]}, {'params': targets, **settings}]


def tensors_of(value, seen=None):
    """Tensors inside states, projectors and tensor subclasses."""
    if isinstance(value, torch.Tensor):
        attributes = getattr(value, 'tensor_attrs', None)
        return [t for a in attributes for t in tensors_of(getattr(value, a))] if attributes else [value]
    if isinstance(value, dict): return [t for v in value.values() for t in tensors_of(v)]
    if isinstance(value, (list, tuple)): return [t for v in value for t in tensors_of(v)]
    return tensors_of(vars(value)) if type(value).__name__.endswith('Projector') else []


def state_bytes(states):
    """Of every storage once; step counters live on the host."""
    found = {t.untyped_storage()._cdata: t.untyped_storage().nbytes() for s in states for k, v in s.items() if k != 'step' for t in tensors_of(v)}
    return sum(found.values())


def know(ledger, tensors):
    """What is there already is not born when an operation in place returns it."""
    for t in tensors:
        storage = t.untyped_storage()
        ledger.alive[storage._cdata] = None
        weakref.finalize(storage, ledger.alive.pop, storage._cdata, None).atexit = False     # its address may serve again


def measure_replacing(make, named):
    """The same for an optimizer that makes some of its states anew in each step: the ledger sees the old ones go."""
    optimizer, = make()
    with torch.no_grad():
        for p in named.values(): p.grad = torch.randn_like(p)
    with Ledger(device='cpu') as ledger:
        know(ledger, [*named.values(), *(p.grad for p in named.values())])
        optimizer.step()
        at = ledger.mark()
        optimizer.step()
        peak = ledger.peak(at, ledger.mark())[0] - ledger.live_bytes(at)
    return {'states_bytes': state_bytes(optimizer.state.values()), 'temporaries_bytes': peak}


def measure(make, named):
    """States after a step, and the most that the next step holds beside weights, gradients and states."""
    optimizers = make()
    with torch.no_grad():
        for p in named.values(): p.grad = torch.randn_like(p)
    for o in optimizers: o.step()
    with Ledger(device='cpu') as ledger:
        know(ledger, [*named.values(), *(p.grad for p in named.values()), *(t for o in optimizers for s in o.state.values() for v in s.values() for t in tensors_of(v))])
        peaks = []
        for o in optimizers:                                # one after the other: the leftovers of one go before the next
            at = ledger.mark()
            o.step()
            peaks.append(ledger.peak(at, ledger.mark())[0])
    return {'states_bytes': sum(state_bytes(o.state.values()) for o in optimizers), 'temporaries_bytes': max(peaks)}


def initialized(optimizer):
    """bitsandbytes and torchao: states only. Their kernels update in place; torchao's are compiled."""
    for g, group in enumerate(optimizer.param_groups):
        for i, p in enumerate(group['params']):
            if hasattr(optimizer, 'init_state'): optimizer.init_state(group, p, g, i)
            else: optimizer.state[p] = {'exp_avg': optimizer._new_buffer(p, True), 'exp_avg_sq': optimizer._new_buffer(p, False)}
    return {'states_bytes': state_bytes(optimizer.state.values())}


def with_working_copy(svd):
    """On a GPU the decomposition works in a copy of its input (ATen/native/BatchLinearAlgebra.cpp, _linalg_svd_out)."""
    def decompose(matrix, *rest, **named):
        copy = matrix.clone()
        result = svd(matrix, *rest, **named)
        del copy
        return result
    return decompose


def lomo(cls, named):
    """An update in the hook: of one parameter whose gradient is there."""
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            for n, p in named.items(): self.register_parameter(n.replace('.', '_'), p)
    torch.Tensor.cuda = lambda self: self
    optimizer, peak = cls(Model(), lr=1e-3), 0
    optimizer.lr = 1e-3
    if hasattr(optimizer, 'step_num'): optimizer.step_num = 2
    largest = named['lm_head.weight']
    kept = [getattr(optimizer, n, {}) for n in ('exp_avg_sq', 'exp_avg_sq_row', 'exp_avg_sq_col')]
    with Ledger(device='cpu') as ledger:
        know(ledger, [*named.values(), *(t for k in kept for t in k.values())])
        largest.grad = torch.randn_like(largest)
        at = ledger.mark()
        optimizer.grad_func(0)
        peak = ledger.peak(at, ledger.mark())[0] - largest.untyped_storage().nbytes()
    return {'states_bytes': state_bytes(kept), 'temporaries_bytes': peak}


def cases():
    """(package, optimizer of the request, framework, function of the named parameters)"""
    import adam_mini, apollo_torch, bitsandbytes, came_pytorch, galore_torch, lion_pytorch, lomo_optim, torchao.optim
    from apollo_torch import random_projector
    from transformers.optimization import Adafactor
    O, h = torch.optim, 'transformers'
    matrix = lambda name, p: p.ndim == 2 and 'layers' in name
    torch.linalg.svd = with_working_copy(torch.linalg.svd)
    galore = dict(rank=32, update_proj_gap=1, scale=0.25, proj_type='std')
    apollo = dict(rank=32, update_proj_gap=200, scale=1.0, proj_type='std', proj='random', scale_type='channel')
    def with_adamw(named):
        return [O.Muon([p for k, p in named.items() if matrix(k, p)]), O.AdamW([p for k, p in named.items() if not matrix(k, p)], foreach=True)]
    for foreach, fused in ((True, False), (False, True), (False, False)):
        yield 'torch', {'name': 'adamw', 'foreach': foreach, 'fused': fused}, h, lambda x, a=foreach, b=fused: measure(lambda: [O.AdamW(grouped(x), foreach=a, fused=b)], x)
    for momentum in (False, True):
        yield 'torch', {'name': 'sgd', 'momentum': momentum}, h, lambda x, m=momentum: measure(lambda: [O.SGD(grouped(x), lr=1e-3, momentum=0.9 * m, foreach=True)], x)
    yield 'torch', {'name': 'muon', 'foreach': True}, h, lambda x: measure(lambda: with_adamw(x), x)
    yield 'torch', {'name': 'adafactor', 'foreach': False}, 'torchtune', lambda x: measure(lambda: [O.Adafactor(grouped(x), foreach=False)], x)
    yield 'transformers', {'name': 'adafactor'}, h, lambda x: measure(lambda: [Adafactor(grouped(x), lr=1e-3, relative_step=False, scale_parameter=False)], x)
    yield 'came-pytorch', {'name': 'came'}, h, lambda x: measure(lambda: [came_pytorch.CAME(grouped(x), lr=1e-3)], x)
    yield 'lion-pytorch', {'name': 'lion'}, 'torchtune', lambda x: measure(lambda: [lion_pytorch.Lion(grouped(x))], x)
    yield 'adam-mini', {'name': 'adam_mini'}, h, lambda x: measure(lambda: [adam_mini.Adam_mini(x.items(), dim=256, n_heads=8, n_kv_heads=4, verbose=False)], x)
    yield 'galore-torch', {'name': 'galore', 'rank': 32}, h, lambda x: measure_replacing(lambda: [galore_torch.GaLoreAdamW(projected(x, **galore), no_deprecation_warning=True)], x)
    random_projector.next_seed = lambda seed, adv=0: seed + 1
    yield 'apollo-torch', {'name': 'apollo', 'rank': 32}, h, lambda x: measure(lambda: [apollo_torch.APOLLOAdamW(projected(x, **apollo))], x)
    yield 'lomo-optim', {'name': 'lomo'}, h, lambda x: lomo(lomo_optim.Lomo, x)
    yield 'lomo-optim', {'name': 'adalomo'}, h, lambda x: lomo(lomo_optim.AdaLomo, x)
    B = bitsandbytes.optim
    yield 'bitsandbytes', {'name': 'adamw', 'states': 'int8'}, 'torchtune', lambda x: initialized(B.AdamW8bit(x.values()))
    yield 'bitsandbytes', {'name': 'lion', 'states': 'int8'}, 'torchtune', lambda x: initialized(B.Lion8bit(x.values()))
    yield 'bitsandbytes', {'name': 'lion'}, h, lambda x: initialized(B.Lion(x.values()))
    yield 'torchao', {'name': 'adamw', 'states': 'int4'}, 'torchtune', lambda x: initialized(torchao.optim.AdamW4bit(x.values()))
    yield 'torchao', {'name': 'adamw', 'states': 'int4'}, h, lambda x: initialized(torchao.optim.AdamW4bit(x.values(), block_size=256))


if __name__ == '__main__':
    warnings.filterwarnings('ignore')
    rows = []
    for package, optimizer, framework, run in cases():
        for precision, dtype in TYPES.items():
            result = run(parameters(dtype))
            rows.append({'source': f'{package} {importlib.metadata.version(package)}', 'framework': framework, 'precision': precision, 'optimizer': optimizer, **result})
            print(json.dumps(rows[-1]), flush=True)
    lines = ',\n'.join('  ' + json.dumps(row) for row in rows)
    path = pathlib.Path(__file__).parent.parent / 'tables' / 'optimizers.json'
    path.write_text(f'{{"model": {json.dumps(CONFIG)},\n "rows": [\n{lines}\n]}}\n')
