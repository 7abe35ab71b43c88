#!/usr/bin/env python3
"""Records the table of rows that the core is compared with: rows/<model>.jsonl, one row a line.

usage: table.py [model ...]        all models, or those whose id contains one of the words; rows that exist are kept
"""
import itertools
import json
import pathlib
import sys
import time

import models
import record

ROWS = pathlib.Path(__file__).parent / 'rows'
BLOCKS = {'LiquidAI/LFM2-1.2B': 4, 'Qwen/Qwen3-Next-80B-A3B-Instruct': 4, 'ibm-granite/granite-4.0-h-1b': 6}
EAGER_ONLY = {'google/gemma-2-9b', 'openai/gpt-oss-20b'}          # Transformers refuses SDPA for these
NO_4BIT = {'openai-community/gpt2', 'Qwen/Qwen3-30B-A3B', 'mistralai/Mixtral-8x7B-v0.1', 'openai/gpt-oss-20b', 'Qwen/Qwen3-Next-80B-A3B-Instruct'}
WIDE = {'meta-llama/Llama-3.1-8B', 'meta-llama/Llama-3.2-1B', 'Qwen/Qwen2.5-7B'}
LIGER = {'meta-llama/Llama-3.1-8B', 'Qwen/Qwen3-8B', 'microsoft/Phi-3-mini-4k-instruct', 'allenai/OLMo-2-1124-7B', 'google/gemma-2-9b'}
SLOW = {'Qwen/Qwen3-Next-80B-A3B-Instruct'}                          # its recurrent layers are Python loops: minutes a row
SCAN = {'ibm-granite/granite-4.0-h-1b'}                             # methods and precisions once
TEXT_ONLY = {'google/gemma-3-4b-pt'}                                # the configuration here has no vision tower
SHORT = {'openai-community/gpt2': 512}


def cases(model):
    length = SHORT.get(model, 1024)
    shapes = [(2, length), (1, 2 * length)]
    kernels = ['eager', 'flash'] if model == 'google/gemma-2-9b' else ['eager'] if model in EAGER_ONLY else ['eager', 'sdpa', 'flash']
    main = kernels[-1] if len(kernels) < 3 else 'sdpa'
    recompute = ['none', 'full']
    wide = model in WIDE

    def case(method, precision, attention, recompute, shape, **more):
        return {'method': method, 'precision': precision, 'attention': attention, 'recompute': recompute, 'micro_batch': shape[0], 'sequence_length': shape[1], **more}

    def lora(rank=16, dropout=0.0, targets=('all-linear',)): return {'lora': {'rank': rank, 'targets': list(targets), 'dropout': dropout}}
    shape, long = shapes
    four_bit = [] if model in NO_4BIT else ['qlora']
    foreach = {'optimizer': {'name': 'adamw', 'states': 'fp32', 'foreach': True}}
    if model in SLOW:
        for again in recompute: yield 0, case('full', 'bf16', main, again, shape)
        yield 0, case('lora', 'bf16_amp', main, 'none', shape, **lora(targets=('q_proj', 'k_proj', 'v_proj', 'o_proj')))
        return
    if model in SCAN:
        for precision in ('fp32', 'bf16_amp', 'bf16'): yield 0, case('full', precision, main, 'none', shape)
        for method in ['lora', *four_bit]: yield 0, case(method, 'bf16_amp', main, 'none', shape, **lora())
        yield 0, case('full', 'bf16', main, 'none', (1, 1000))
        for method in ('full', 'lora'): yield 0, case(method, 'bf16_amp', main, 'full', shape, **(lora() if method == 'lora' else {}))
        return
    # the heart: every method and precision once, without and with recompute
    for again in recompute:
        for precision in ('fp32', 'bf16_amp', 'bf16'):      # flash-attn has no FP32 kernel
            yield 0, case('full', precision, 'eager' if main == 'flash' and precision == 'fp32' else main, again, shape)
        for method in ['lora', *four_bit, 'dora']: yield 0, case(method, 'bf16_amp', main, again, shape, **lora())
        yield 1, case('lora', 'bf16_amp', main, again, shape, **lora(dropout=0.05))
        yield 1, case('lora', 'bf16', main, again, shape, **lora())
        yield 1, case('full', 'bf16', main, again, long)
        yield 1, case('lora', 'bf16_amp', main, again, long, **lora())
        for attention in kernels:
            if attention != main:
                yield 1, case('full', 'bf16', attention, again, shape)
                yield 1, case('full', 'bf16_amp', attention, again, shape)
    yield 1, case('full', 'bf16_amp', main, 'none', shape, **foreach)
    yield 1, case('full', 'bf16_amp', main, 'full', (8, 512))
    # Liger's kernels, logits never all there and all there
    if model in LIGER:
        for again in recompute:
            for loss in ('fused', 'full_logits'):
                liger = {'framework': 'liger', 'kernels': 'fused', 'cross_entropy': loss}
                for precision in ('bf16_amp', 'bf16'): yield 1, case('full', precision, main, again, shape, **liger)
                yield 1, case('lora', 'bf16_amp', main, again, shape, **liger, **lora())
    # every method under every kernel and precision, short batch and long sequence
    adapters = [('lora', lora()), *((method, lora()) for method in four_bit), ('dora', lora())]
    for precision, again, attention, s in itertools.product(('bf16_amp', 'bf16', 'fp32'), recompute, kernels, shapes):
        if attention == 'flash' and precision == 'fp32': continue
        tier = 3 if precision == 'bf16_amp' else 4
        yield tier, case('full', precision, attention, again, s)
        for method, choice in adapters:                     # 4-bit products compute in 16 bits here
            if (method, precision) != ('qlora', 'fp32'): yield tier, case(method, precision, attention, again, s, **choice)
    # and for some models the rest
    if not wide: return
    for again in recompute:
        for precision, attention, s in itertools.product(('fp32', 'bf16_amp', 'bf16'), kernels, shapes):
            if attention != 'flash' or precision != 'fp32': yield 2, case('full', precision, attention, again, s)
        for method, attention, s in itertools.product(('lora', *four_bit, 'dora'), kernels, shapes): yield 2, case(method, 'bf16_amp', attention, again, s, **lora())
        for method in ('lora', *four_bit, 'dora'):
            yield 2, case(method, 'bf16_amp', main, again, shape, **lora(dropout=0.05))
            yield 2, case(method, 'bf16_amp', main, again, shape, **lora(rank=64, targets=('q_proj', 'v_proj')))
            yield 2, case(method, 'bf16_amp', main, again, (4, 4096), **lora())
        yield 2, case('lora', 'fp32', main, again, shape, **lora())
        yield 2, case('lora', 'bf16_amp', main, again, shape, base_weights='fp32', **lora())
        for method in four_bit:
            yield 2, case(method, 'bf16_amp', main, again, shape, kbit_upcast=False, **lora())
            yield 2, case(method, 'bf16_amp', main, again, shape, base_weights='nf4', **lora())
        yield 2, case('full', 'bf16', main, again, shape, optimizer={'name': 'adamw', 'states': 'bf16', 'foreach': True})


def main(words):
    record.prepare()
    ROWS.mkdir(exist_ok=True)
    todo = sorted(((tier, place, order, model, training) for order, model in enumerate(models.CONFIGS) if not words or any(word in model for word in words)
                   for place, (tier, training) in enumerate(cases(model))), key=lambda c: c[:3])
    known, start = set(), time.time()
    for file in ROWS.glob('*.jsonl'): known |= {json.loads(line)['id'] for line in file.read_text().splitlines()}
    for at, (tier, _, _, model, training) in enumerate(todo):
        overrides = {'num_hidden_layers': BLOCKS.get(model, 2)} | ({'text_only': True} if model in TEXT_ONLY else {})
        request = {'model': {'id': model, 'overrides': overrides}, 'training': training}
        name = models.row_id(record.normalize(request))
        if name in known: continue
        known.add(name)
        try: row = record.run(request, steps=2 if tier == 0 and model in WIDE else 1)
        except Exception as problem:
            print(f'{name}: {type(problem).__name__}: {str(problem)[:200]}', file=sys.stderr, flush=True)
            continue
        with (ROWS / (model.split('/')[-1] + '.jsonl')).open('a') as out: out.write(json.dumps(row, separators=(',', ':')) + '\n')
        print(f'{at + 1}/{len(todo)} {time.time() - start:.0f} s {name}', flush=True)


if __name__ == '__main__':
    if '-h' in sys.argv or '--help' in sys.argv: sys.exit(__doc__)
    main(sys.argv[1:])
