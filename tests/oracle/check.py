#!/usr/bin/env python3
"""Builds every configuration at full depth on fake tensors and compares its parameter count.

usage: check.py models.json      (the catalogue's facts: ids with their published counts)
"""
import json
import sys

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import models
import record


def main(path):
    from transformers import AutoModelForCausalLM
    facts, wrong = {row['id']: row for row in json.load(open(path))}, 0
    for name in models.CONFIGS:
        with FakeTensorMode(allow_non_fake_inputs=True), record.DEVICE:
            model = AutoModelForCausalLM.from_config(models.config({'id': name}), dtype=torch.bfloat16)
            count = sum(p.numel() for p in model.parameters())
        fact = facts[name]
        expected = {fact['published_params'], fact.get('published_params_net'), fact['computed_params'], fact['computed_text_params']}
        wrong += count not in expected
        print('ok   ' if count in expected else 'WRONG', name, count, '' if count in expected else expected)
    return wrong


if __name__ == '__main__':
    if len(sys.argv) != 2: sys.exit(__doc__)
    record.prepare()
    sys.exit(main(sys.argv[1]))
