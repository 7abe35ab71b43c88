"""A policy and its value model through one pass of PPO, as TRL's PPOTrainer holds them (trl 0.29, trl/experimental/ppo/ppo_trainer.py):
one module of both, the value model first; every hidden state is asked for and, with the logits, stays by name until the optimizer has run.
Two things of its step are left out: attention masks (all sequences are full) and the numbers it prints.
"""
import torch
from torch import nn

import models


class PolicyAndValue(nn.Module):
    def __init__(self, policy, value):
        super().__init__()
        self.policy, self.value = policy, value
        self.backbone = [getattr(value, value.base_model_prefix)]    # in a list: it has its parameters through `value`

    def forward(self, **inputs):
        values = self.value.score(self.backbone[0](**inputs).hidden_states[-1])
        return self.policy(**inputs), values


def without_dropout(model):
    for module in model.modules():
        if isinstance(module, nn.Dropout): module.p = 0
    return model


def value_model(request, config, dtype, device):
    from transformers import AutoModelForSequenceClassification
    t = request['training']
    config.num_labels, config.pad_token_id = 1, 0          # PEFT hands over the whole classifier, which asks for padding
    with device:
        value = AutoModelForSequenceClassification.from_config(config, dtype=dtype, attn_implementation=config._attn_implementation)
    value.train()
    if t['recompute'] == 'full':
        value.gradient_checkpointing_enable(gradient_checkpointing_kwargs={'use_reentrant': False})
        value.config.use_cache = False
    if t['value_model'] == 'adapters':
        if t['recompute'] == 'full': value.enable_input_require_grads()
        from peft import LoraConfig, get_peft_model
        value = get_peft_model(value, LoraConfig(r=t['lora']['rank'], lora_alpha=2 * t['lora']['rank'], target_modules='all-linear' if t['lora']['targets'] == ['all-linear'] else t['lora']['targets'], task_type='SEQ_CLS'))
        value.train()
    return value


def log_probabilities(logits, labels):
    """trl/trainer/utils.py, selective_log_softmax."""
    if logits.dtype in (torch.float32, torch.float64):
        picked = torch.gather(logits, -1, labels.unsqueeze(-1)).squeeze(-1)
        return picked - torch.stack([torch.logsumexp(row, dim=-1) for row in logits])
    rows = []
    for row, wanted in zip(logits, labels, strict=True):
        rows.append(nn.functional.log_softmax(row, dim=-1).gather(-1, wanted.unsqueeze(-1)).squeeze(-1))
    return torch.stack(rows)


def loss_of(forward, tokens, completion):
    """The loss, and what Python still names when the optimizer has run."""
    output, values = forward(input_ids=tokens, output_hidden_states=True, return_dict=True)
    answer = slice(tokens.shape[1] - completion - 1, -1)
    logits = output.logits[:, answer]
    logits /= 0.7
    now = log_probabilities(logits, tokens[:, -completion:])
    value = values[:, answer].squeeze(-1)
    old = torch.zeros_like(now.detach())
    clipped = torch.clamp(value, old - 0.2, old + 0.2)
    value_loss = 0.5 * torch.max(torch.square(value - old), torch.square(clipped - old)).mean()
    ratio = torch.exp(now - old)
    policy_loss = torch.max(-old * ratio, -old * torch.clamp(ratio, 0.8, 1.2)).mean()
    return policy_loss + 0.1 * value_loss, (output, values, logits, now, value)
