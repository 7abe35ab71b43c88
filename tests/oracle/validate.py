#!/usr/bin/env python3
"""Holds the ledger against real allocations: a small model runs for real on the CPU under PyTorch's memory profiler, and on fake tensors.

usage: validate.py
Eager attention, FP32 and 16-bit, with and without recompute and LoRA. No dropout (CPU keeps its mask as floats, CUDA as bytes). Tolerance 0.1 %.
"""
import sys

import torch

import models
import record

SMALL = {'hidden_size': 256, 'intermediate_size': 768, 'num_attention_heads': 8, 'num_key_value_heads': 4, 'vocab_size': 2048, 'head_dim': 32, 'num_hidden_layers': 2}
CASES = [{'method': 'full', 'precision': 'fp32'}, {'method': 'full', 'precision': 'fp32', 'recompute': 'full'}, {'method': 'full', 'precision': 'bf16'},
         {'method': 'full', 'precision': 'bf16', 'recompute': 'full'}, {'method': 'lora', 'precision': 'fp32', 'lora': {'rank': 8, 'targets': ['all-linear'], 'dropout': 0.0}}]


def real(request):
    """Peak of each phase above idle, as the CPU allocator saw it."""
    t = record.normalize(request)['training']
    record.DEVICE = torch.device('cpu')
    try: model = record.build({'model': request['model'], 'training': t}, [])
    finally: record.DEVICE = torch.device('cuda:0')
    optimizer = record.optimizer_of(model, t)
    tokens = torch.zeros(t['micro_batch'], t['sequence_length'], dtype=torch.long)
    with torch.profiler.profile(profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        with torch.profiler.record_function('phase-forward'): loss = model(input_ids=tokens, labels=tokens)['loss']
        with torch.profiler.record_function('phase-backward'): loss.backward()
        with torch.profiler.record_function('phase-optimizer'):
            torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], 1.0)
            optimizer.step()
    events = sorted(profile.profiler.kineto_results.events(), key=lambda e: e.start_ns())
    starts = sorted((e.start_ns(), e.name()[6:]) for e in events if e.name().startswith('phase-'))
    live, peak = 0, {}
    for e in events:
        if e.name() != '[memory]': continue
        live += e.nbytes()
        phase = [name for start, name in starts if start <= e.start_ns()]
        if phase: peak[phase[-1]] = max(peak.get(phase[-1], 0), live)
    return peak


def main():
    models.CONFIGS['small'] = ('llama', SMALL)
    models.CONFIGS['tied'] = ('llama', {**SMALL, 'vocab_size': 16384, 'tie_word_embeddings': True})
    worst = 0
    for model, case in [*(('small', case) for case in CASES), ('tied', CASES[0]), ('tied', CASES[3])]:
        length = 64 if model == 'tied' else 512    # short, so that the sum of the table's two gradients is the peak
        request = {'model': {'id': model}, 'training': {**case, 'attention': 'eager', 'sequence_length': length, 'micro_batch': 2}}
        row, seen = record.run(request, steps=1), real(request)
        for phase in ('forward', 'backward', 'optimizer'):
            ours = row['peak_first_step'][phase] - row['idle_bytes']
            difference = ours / seen[phase] - 1
            worst = max(worst, abs(difference))
            print(f"{model:5} {case['method']:5} {case['precision']:5} {case.get('recompute', 'none'):5} {phase:9} ledger {ours:12} real {seen[phase]:12} {difference:+.2%}")
    return worst > 0.001


if __name__ == '__main__':
    if len(sys.argv) > 1: sys.exit(__doc__)
    record.prepare()
    sys.exit(main())
