#!/usr/bin/env python3
"""One training step of a real Transformers model on fake tensors; writes what it keeps and where its memory peaks.

usage: record.py '{"model": ..., "training": {...}}' [--detail]     one request (design.md section 4 names) in, one row out
"""
import argparse
import contextlib
import gc
import importlib.metadata
import json
import sys
import warnings

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import allocator
import fake_cuda
import kernels
import liger
import models
import ppo
from ledger import Ledger

DEVICE = torch.device('cuda:0')
DEFAULTS = {'objective': 'sft', 'method': 'full', 'framework': 'transformers', 'precision': 'bf16_amp', 'sequence_length': 1024, 'micro_batch': 1,
            'recompute': 'none', 'attention': 'sdpa', 'cross_entropy': 'full_logits', 'kernels': 'eager', 'kbit_upcast': True, 'compile': False}


def normalize(request):
    training = {**DEFAULTS, **request.get('training', {})}
    adapter = training['method'] in ('lora', 'qlora', 'dora')
    training.setdefault('base_weights', 'nf4_dq' if training['method'] == 'qlora' else
                        'fp32' if training['precision'] == 'fp32' or (training['precision'] == 'bf16_amp' and not adapter) else 'bf16')
    training.setdefault('optimizer', {'name': 'adamw', 'states': 'bf16' if training['precision'] == 'bf16' and not adapter else 'fp32', 'paged': False, 'foreach': False, 'in_backward': False})
    if adapter: training.setdefault('lora', {'rank': 16, 'targets': ['all-linear'], 'dropout': 0.0})
    model = request['model'] if isinstance(request['model'], dict) else {'id': request['model']}
    return {'model': model, 'training': training}


# -- the model as the Trainer would hold it -----------------------------------------------------------------------------------

def build(request, notes):
    from transformers import AutoModelForCausalLM
    t = request['training']
    config = models.config(request['model'])
    config._attn_implementation = {'eager': 'eager', 'sdpa': 'sdpa', 'flash': 'fa2_on_aten'}[t['attention']]
    dtype = torch.float32 if t['base_weights'] == 'fp32' else torch.bfloat16
    with DEVICE:
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=config._attn_implementation)
    assert all(x.device == DEVICE for x in (*model.parameters(), *model.buffers())), 'something was not built on the fake device'
    model.train()
    if t['method'] == 'qlora':
        models.quantize(model, t['base_weights'], notes)
        if t['kbit_upcast']: models.upcast(model)
    if t['method'] == 'freeze': freeze(model, t['trainable_layers'])
    checkpointing = {'use_reentrant': False}
    if t['recompute'] == 'full':
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=checkpointing)
        model.config.use_cache = False
    if t['method'] in ('lora', 'qlora', 'dora'):
        if t['recompute'] == 'full': model.enable_input_require_grads()
        from peft import LoraConfig, get_peft_model
        targets = t['lora']['targets']
        model = get_peft_model(model, LoraConfig(r=t['lora']['rank'], lora_alpha=2 * t['lora']['rank'], lora_dropout=t['lora'].get('dropout', 0.0), use_dora=t['method'] == 'dora',
                                                 target_modules='all-linear' if targets == ['all-linear'] else targets, task_type='CAUSAL_LM',
                                                 modules_to_save=[models.SAVED[name] for name in t['lora'].get('modules_to_save', [])] or None),
                               autocast_adapter_dtype=True)  # PEFT's default, in pure 16 bits too
        model.train()
    if t['objective'] != 'ppo': return model
    value = ppo.value_model(request, models.config(request['model'], config._attn_implementation), dtype, DEVICE)
    return ppo.PolicyAndValue(ppo.without_dropout(model), ppo.without_dropout(value))


def freeze(model, layers):
    """Only the last layers train."""
    path, count = blocks_of(model)
    model.requires_grad_(False)
    for block in list(model.get_submodule(path))[max(count - layers, 0):]: block.requires_grad_(True)


def forward_of(model, t):
    """accelerate's wrapping: autocast around forward, every 16-bit output raised to FP32 afterwards."""
    if not t['precision'].endswith('_amp'): return model
    from accelerate.utils import convert_outputs_to_fp32
    to = torch.bfloat16 if t['precision'] == 'bf16_amp' else torch.float16

    def forward(**batch):
        with torch.autocast('cuda', dtype=to): return model(**batch)
    return convert_outputs_to_fp32(forward)


def optimizer_of(model, t):
    o = t['optimizer']
    trainable = [p for p in model.parameters() if p.requires_grad]
    kind = {'foreach': True} if o.get('foreach') else {'fused': True} if o.get('fused', True) else {'foreach': False}
    return torch.optim.AdamW(trainable, lr=1e-4, **kind)


# -- reading the autograd graph -----------------------------------------------------------------------------------------------

def saved_users(loss, ledger):
    """{storage: [(node, attribute)]} of every tensor that the graph keeps, and the bytes of each node's module."""
    users, seen, todo = {}, set(), [loss.grad_fn]
    while todo:
        node = todo.pop()
        if node is None or node in seen: continue
        seen.add(node)
        todo += [n for n, _ in node.next_functions]
        tensors = []
        for name in dir(node):
            if name.startswith('_saved_'):
                value = getattr(node, name)
                tensors += [(name[7:], v) for v in (value if isinstance(value, (list, tuple)) else [value]) if isinstance(v, torch.Tensor)]
        if hasattr(node, 'saved_tensors') and not any(True for n in dir(node) if n.startswith('_saved_')):
            tensors += [(f'saved{i}', v) for i, v in enumerate(node.saved_tensors) if isinstance(v, torch.Tensor)]
        for name, v in tensors:
            if s := ledger.of(v): users.setdefault(id(s), []).append((node._sequence_nr(), f'{node.name()}.{name}', ledger.module_of(node._sequence_nr())))
    return users


def blocks_of(model):
    """(path, module) of the decoder blocks."""
    best = max((m for m in model.named_modules() if isinstance(m[1], torch.nn.ModuleList) and m[0].split('.')[-1] in ('layers', 'h')), key=lambda m: len(m[1]))
    return best[0], len(best[1])


def peaks_by_place(ledger, path, count, marks, states):
    """Highest live bytes while a block's operations run, per block, and while everything else runs."""
    found = {}
    for name, start, end in (('forward', marks['start'], marks['forward']), ('backward', marks['forward'], marks['backward'])):
        blocks, outside, live = [0] * count, 0, ledger.live_bytes(start) + states
        for sign, s in ledger.events[start:end]:
            live += sign * s.bytes
            if sign < 1: continue
            block = models.block_index(s.place, path)
            if block is None: outside = max(outside, live)
            else: blocks[block] = max(blocks[block], live)
        found[name] = {'blocks': blocks, 'outside': outside}
    return found


def by_dtype(tensors):
    total, seen = {}, set()
    for x in tensors:
        key = x.untyped_storage()._cdata
        if key in seen: continue
        seen.add(key)
        total[str(x.dtype)[6:]] = total.get(str(x.dtype)[6:], 0) + x.untyped_storage().nbytes()
    return total


def group(storages, base=()):
    """Storages at one instant, equal ones folded, largest first."""
    folded = {}
    for s in storages:
        key = (s.bytes, str(s.dtype), s.shape, s.op, models.without_index(s.module), s.phase, s.kind, s.node)
        folded.setdefault(key, [s, 0])[1] += 1
    return [{**s.line(), 'count': n} for s, n in sorted(folded.values(), key=lambda v: -v[0].bytes * v[1])]


def run(request, detail=False, steps=2):
    request = normalize(request)
    t, notes = request['training'], []
    kernels.chosen.clear()
    gc.collect()
    gc.disable()
    patched = liger.applied(models.config(request['model']), t['cross_entropy']) if t['framework'] == 'liger' else contextlib.nullcontext()
    try:
        with patched, FakeTensorMode(allow_non_fake_inputs=True), Ledger(kernels.transients()) as ledger:
            return measure(request, t, notes, ledger, detail, steps)
    finally:
        gc.enable()


def measure(request, t, notes, ledger, detail, step_count):
    model = build(request, notes)
    gc.collect()
    ledger.watch(model)
    path = blocks_of(model)[0]
    parent, _, stack = path.rpartition('.')
    for name, child in model.get_submodule(parent).named_children():
        if name == stack:
            for i, block in enumerate(child): ledger.own(block, f'{path}.{i}')
        elif 'norm' in name or name == 'ln_f': ledger.own(child, f'{parent}.{name}')
    parameters = [*model.parameters(), *models.quantization(model)]
    for p in parameters:
        if s := ledger.of(p): s.kind = 'parameter'
    for b in model.buffers():
        if (s := ledger.of(b)) and not s.kind: s.kind = 'buffer'
    forward, optimizer = forward_of(model, t), optimizer_of(model, t)
    with DEVICE:
        tokens = torch.zeros(t['micro_batch'], t['sequence_length'], dtype=torch.long)
    batch = {'input_ids': tokens, 'labels': tokens.clone()}
    for b in batch.values(): ledger.of(b).kind = 'batch'
    trainable = [p for p in model.parameters() if p.requires_grad]
    row, steps = {}, []
    idle = ledger.mark()
    for step in range(step_count):
        marks = {'start': ledger.mark()}
        ledger.phase = 'forward'
        if t['objective'] == 'ppo':
            loss, held = ppo.loss_of(forward, tokens, t['generation']['completion_length'])
        else:
            outputs, held = forward(**batch), None
            loss = outputs['loss']
            del outputs                                     # compute_loss drops them before backward
        marks['forward'] = ledger.mark()
        if step == 0: saved(row, loss, model, ledger, t, marks, detail)
        ledger.phase = 'backward'
        ledger.mark()
        loss.backward()
        loss = loss.detach()
        marks['backward'] = ledger.mark()
        if step == 0:
            row['grads_by_dtype'] = by_dtype([p.grad for p in trainable if p.grad is not None])
            for p in trainable:
                if p.grad is not None and (s := ledger.of(p.grad)): s.kind = 'gradient'
        ledger.phase = 'optimizer'
        torch.nn.utils.clip_grad_norm_(trainable, 1.0)
        optimizer.step()
        marks['optimizer'] = ledger.mark()
        if step == 0:
            row['states_by_dtype'] = by_dtype([v for state in optimizer.state.values() for v in state.values() if isinstance(v, torch.Tensor) and v.device.type == 'cuda'])
            for state in optimizer.state.values():
                for v in state.values():
                    if isinstance(v, torch.Tensor) and (s := ledger.of(v)): s.kind = 'state'
        optimizer.zero_grad(set_to_none=True)
        del loss, held
        marks['end'] = ledger.mark()
        steps.append(marks)
        ledger.phase = 'build'
    return finish(request, t, notes, row, steps, ledger, parameters, idle, blocks_of(model), detail)


def saved(row, loss, model, ledger, t, marks, detail):
    """What forward left alive: per block, per module, per operation."""
    path, count = blocks_of(model)
    kept = [s for s in ledger.live_at(marks['forward']) if s.phase == 'forward']
    per_block, other = {}, 0
    for s in kept:
        block = models.block_index(s.module, path)
        if block is None: other += s.bytes
        else: per_block[block] = per_block.get(block, 0) + s.bytes
    modules = {}
    for s in kept:
        name, blocks = models.owner(s.module), models.owner(path) + '.'
        name = name[len(blocks):] if name.startswith(blocks) else name or 'loss'
        modules[name] = modules.get(name, 0) + s.bytes
    row['saved_bytes_per_block'] = [per_block.get(i, 0) for i in range(count)]
    row['saved_bytes_outside'] = other
    last = str(count - 1)
    row['saved_by_module'] = {}
    for name, size in modules.items():
        head, _, tail = name.partition('.')
        if head.isdigit():
            if head == last: row['saved_by_module'][f'block.{tail}' if tail else 'block'] = size
        else: row['saved_by_module'][name] = size
    if detail and t['recompute'] == 'none':
        users = saved_users(loss, ledger)
        detail_rows = []
        for s in sorted(kept, key=lambda s: s.born):
            line = s.line()
            line['saved_by'] = [f'{what} @{where[len(path) + 1:] if where.startswith(path) else where}' for _, what, where in sorted(users.get(id(s), []))]
            detail_rows.append(line)
        row['detail_saved'] = detail_rows
    elif detail:
        row['detail_saved'] = [s.line() for s in sorted(kept, key=lambda s: s.born)]


def finish(request, t, notes, row, steps, ledger, parameters, idle, blocks, detail):
    out = []
    for marks in steps:
        edges = [('forward', marks['start'], marks['forward']), ('backward', marks['forward'], marks['backward']), ('optimizer', marks['backward'], marks['optimizer'])]
        out.append({name: ledger.peak(a, b) for name, a, b in edges})
    first = {name: v[0] for name, v in out[0].items()}
    states = sum(row['states_by_dtype'].values())
    # A second step differs from the first by the states that are there from its start.
    steady = {name: v[0] for name, v in out[1].items()} if len(out) > 1 else {**first, 'forward': first['forward'] + states, 'backward': first['backward'] + states}
    row['steps'] = len(steps)
    row['peak'] = {'overall': max(*first.values(), *steady.values()), **steady}
    row['peak_first_step'] = first
    phase = max(steady, key=steady.get)
    last = ledger.events[out[-1][phase][1] - 1][1]
    row['peak_where'] = {'phase': phase, 'op': last.op, 'module': last.module, 'node': last.node}
    row['peak_by_place'] = peaks_by_place(ledger, *blocks, steps[-1], states if len(steps) == 1 else 0)
    row['idle_bytes'] = ledger.live_bytes(idle)
    row['after_step_bytes'] = ledger.live_bytes(steps[-1]['end'])
    row['forward_end_bytes'] = ledger.live_bytes(steps[0]['forward']) - ledger.live_bytes(steps[0]['start'])
    row['params_by_dtype'] = by_dtype(parameters)
    if detail:
        for name in ('forward', 'backward', 'optimizer'):
            best, at = out[-1][name]
            last = ledger.events[at - 1][1]
            row['detail_' + name] = {'bytes': best, 'where': last.line(), 'alive': group(ledger.live_at(at))[:60]}
        ends = {f'{name} {step + 1}': marks[name] for step, marks in enumerate(steps) for name in ('forward', 'backward', 'optimizer')}
        row['detail_reserved'] = allocator.replay(ledger.events, idle, ends)
    if kernels.chosen: notes.append('attention kernel: ' + ', '.join(sorted(kernels.chosen)))
    if t['attention'] == 'flash': notes.append('flash-attn function replaced by the ATen flash operation (same saved set)')
    if t['framework'] == 'liger': notes.append("Liger's autograd functions as they are, its Triton kernels left out")
    packages = ('torch', 'transformers', 'peft', 'bitsandbytes', 'accelerate', *(('liger_kernel',) if t['framework'] == 'liger' else ()))
    versions = {p: importlib.metadata.version(p) for p in packages}
    return {'id': models.row_id(request), 'request': request, 'versions': versions, 'notes': notes, **row}


def prepare():
    warnings.filterwarnings('ignore')
    fake_cuda.install()
    kernels.install()
    liger.install()
    import transformers
    transformers.logging.set_verbosity_error()
    import accelerate, peft, bitsandbytes  # noqa: F401, E401
    gc.freeze()


if __name__ == '__main__':
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('request')
    parser.add_argument('--detail', action='store_true')
    arguments = parser.parse_args()
    prepare()
    json.dump(run(json.loads(arguments.request), arguments.detail), sys.stdout)
    print()
