"""Configurations by catalogue id, given inline, and the 4-bit preparation of a model."""
import json
import re

import torch

LLAMA3 = {'rope_type': 'llama3', 'factor': 8.0, 'low_freq_factor': 1.0, 'high_freq_factor': 4.0, 'original_max_position_embeddings': 8192, 'rope_theta': 500000.0}


def dense(hidden, inner, layers, heads, kv, vocab, **more):
    return {'hidden_size': hidden, 'intermediate_size': inner, 'num_hidden_layers': layers, 'num_attention_heads': heads, 'num_key_value_heads': kv, 'vocab_size': vocab, **more}


CONFIGS = {
    'meta-llama/Llama-2-7b-hf': ('llama', dense(4096, 11008, 32, 32, 32, 32000, max_position_embeddings=4096)),
    'meta-llama/Llama-3.1-8B': ('llama', dense(4096, 14336, 32, 32, 8, 128256, max_position_embeddings=131072, rope_parameters=LLAMA3)),
    'meta-llama/Llama-3.2-1B': ('llama', dense(2048, 8192, 16, 32, 8, 128256, head_dim=64, max_position_embeddings=131072, tie_word_embeddings=True, rope_parameters={**LLAMA3, 'factor': 32.0})),
    'meta-llama/Llama-3.2-3B': ('llama', dense(3072, 8192, 28, 24, 8, 128256, head_dim=128, max_position_embeddings=131072, tie_word_embeddings=True, rope_parameters={**LLAMA3, 'factor': 32.0})),
    'mistralai/Mistral-7B-v0.1': ('mistral', dense(4096, 14336, 32, 32, 8, 32000, max_position_embeddings=32768, sliding_window=4096)),
    'Qwen/Qwen2.5-0.5B': ('qwen2', dense(896, 4864, 24, 14, 2, 151936, max_position_embeddings=32768, tie_word_embeddings=True)),
    'Qwen/Qwen2.5-7B': ('qwen2', dense(3584, 18944, 28, 28, 4, 152064, max_position_embeddings=131072)),
    'Qwen/Qwen3-8B': ('qwen3', dense(4096, 12288, 36, 32, 8, 151936, head_dim=128, max_position_embeddings=40960)),
    'Qwen/Qwen3-30B-A3B': ('qwen3_moe', dense(2048, 6144, 48, 32, 4, 151936, head_dim=128, max_position_embeddings=40960, num_experts=128, num_experts_per_tok=8, moe_intermediate_size=768, norm_topk_prob=True)),
    'mistralai/Mixtral-8x7B-v0.1': ('mixtral', dense(4096, 14336, 32, 32, 8, 32000, max_position_embeddings=32768, num_local_experts=8, num_experts_per_tok=2, sliding_window=None)),
    'google/gemma-2-9b': ('gemma2', dense(3584, 14336, 42, 16, 8, 256000, head_dim=256, max_position_embeddings=8192, sliding_window=4096, query_pre_attn_scalar=256, attn_logit_softcapping=50.0, final_logit_softcapping=30.0, hidden_activation='gelu_pytorch_tanh', tie_word_embeddings=True)),
    'google/gemma-3-4b-pt': ('gemma3_text', dense(2560, 10240, 34, 8, 4, 262208, head_dim=256, max_position_embeddings=131072, sliding_window=1024, query_pre_attn_scalar=256, hidden_activation='gelu_pytorch_tanh', tie_word_embeddings=True)),
    'microsoft/Phi-3-mini-4k-instruct': ('phi3', dense(3072, 8192, 32, 32, 32, 32064, max_position_embeddings=4096, original_max_position_embeddings=4096, sliding_window=2047)),
    'openai-community/gpt2': ('gpt2', {'n_embd': 768, 'n_layer': 12, 'n_head': 12, 'vocab_size': 50257, 'n_positions': 1024}),
    'openai/gpt-oss-20b': ('gpt_oss', dense(2880, 2880, 24, 64, 8, 201088, head_dim=64, max_position_embeddings=131072, sliding_window=128, num_local_experts=32, num_experts_per_tok=4, attention_bias=True)),
    'allenai/OLMo-2-1124-7B': ('olmo2', dense(4096, 11008, 32, 32, 32, 100352, max_position_embeddings=4096)),
    'HuggingFaceTB/SmolLM2-135M': ('llama', dense(576, 1536, 30, 9, 3, 49152, max_position_embeddings=8192, tie_word_embeddings=True)),
    'LiquidAI/LFM2-1.2B': ('lfm2', dense(2048, 12288, 16, 32, 8, 65536, max_position_embeddings=128000, block_auto_adjust_ff_dim=True, tie_word_embeddings=True, full_attn_idxs=[2, 5, 8, 10, 12, 14])),
    'ibm-granite/granite-4.0-h-1b': ('granitemoehybrid', dense(1536, 4096, 40, 12, 4, 100352, max_position_embeddings=131072, tie_word_embeddings=True, shared_intermediate_size=4096, num_local_experts=0, num_experts_per_tok=0, mamba_n_heads=48, mamba_d_head=64, mamba_d_state=128, embedding_multiplier=12, residual_multiplier=0.22, attention_multiplier=0.0078125, logits_scaling=6, position_embedding_type='nope', layer_types=[('linear', 'full')[i % 10 == 5] + '_attention' for i in range(40)])),
    'Qwen/Qwen3-Next-80B-A3B-Instruct': ('qwen3_next', dense(2048, 5120, 48, 16, 2, 151936, head_dim=256, num_experts=512, num_experts_per_tok=10, moe_intermediate_size=512, shared_expert_intermediate_size=512)),
}
SAVED = {'embedding': 'embed_tokens', 'head': 'lm_head'}             # modules_to_save, by the contract's names
SPECIAL = {'pad_token_id', 'bos_token_id', 'eos_token_id'}


def config(model, attention=None):
    from transformers import AutoConfig
    kind, fields = CONFIGS[model['id']]
    fields = dict(fields)
    for name, value in (model.get('overrides') or {}).items():
        if name == 'text_only': continue                             # these configurations have no towers
        if name == 'num_hidden_layers' and kind == 'gpt2': name = 'n_layer'
        fields[name] = value
    if 'layer_types' in fields: fields['layer_types'] = fields['layer_types'][:fields['num_hidden_layers']]
    c = AutoConfig.for_model(kind, **fields, pad_token_id=None)
    if attention: c._attn_implementation = attention
    return c


def row_id(request):
    t, m = request['training'], request['model']
    o = t['optimizer']
    parts = [m['id'].split('/')[-1], f"l{(m.get('overrides') or {}).get('num_hidden_layers', 'all')}", t['method'], t['precision'], t['base_weights'], t['attention'], 'recompute-' + t['recompute'],
             f"b{t['micro_batch']}", f"s{t['sequence_length']}"]
    if 'lora' in t:
        parts.append(f"r{t['lora']['rank']}-d{t['lora'].get('dropout', 0)}" + ('' if t['lora']['targets'] == ['all-linear'] else '-' + '+'.join(t['lora']['targets'])))
        parts += ['saves-' + name for name in t['lora'].get('modules_to_save', [])]
    if t['method'] == 'freeze': parts.append(f"last{t['trainable_layers']}")
    parts.append('foreach' if o.get('foreach') else 'fused' if o.get('fused', True) else 'loop')
    if t['method'] == 'qlora' and not t['kbit_upcast']: parts.append('no-upcast')
    if t['objective'] == 'ppo': parts += ['ppo', 'value-' + t['value_model'], f"c{t['generation']['completion_length']}"]
    if t['framework'] != 'transformers': parts += [t['framework'], t['cross_entropy']]
    return '/'.join(parts)


def without_index(module):
    return re.sub(r'\.\d+(?=\.|$)', '.*', module)


def owner(module):
    """The module a reader knows: adapters count as their target, wrappers of PEFT disappear."""
    module = re.sub(r'\.(lora_|base_layer).*$', '', module)
    return re.sub(r'^base_model\.model(\.|$)', '', module)


def block_index(module, path):
    if not module.startswith(path + '.'): return None
    return int(module[len(path) + 1:].split('.')[0])


# -- 4-bit base ---------------------------------------------------------------------------------------------------------------

def quantize(model, kind, notes):
    """Every linear of the blocks becomes bitsandbytes' Linear4bit holding fake packed weights and quantization constants."""
    import bitsandbytes as bnb
    from bitsandbytes.functional import QuantState
    from torch._subclasses.fake_tensor import unset_fake_temporarily
    nested = kind == 'nf4_dq'
    head = model.get_output_embeddings()

    def constant(*shape, dtype): return torch.empty(*shape, dtype=dtype, device='cuda:0')
    code = constant(16, dtype=torch.float32)
    shared = constant(256, dtype=torch.float32)
    for name, module in list(model.named_modules()):
        if not isinstance(module, torch.nn.Linear) or module is head: continue
        out, into = module.weight.shape
        n = out * into
        with unset_fake_temporarily(), torch.device('meta'): new = bnb.nn.Linear4bit(8, 8, bias=False, compute_dtype=torch.bfloat16, quant_type='nf4', compress_statistics=nested)
        new.in_features, new.out_features = into, out
        weight = torch.nn.Parameter(constant((n + 1) // 2, 1, dtype=torch.uint8), requires_grad=False)
        blocks = -(-n // 64)
        if nested:
            state2 = QuantState(absmax=constant(-(-blocks // 256), dtype=torch.float32), code=shared, blocksize=256, dtype=torch.float32)
            state = QuantState(absmax=constant(blocks, dtype=torch.uint8), shape=torch.Size((out, into)), dtype=torch.bfloat16, blocksize=64, code=code, quant_type='nf4',
                               offset=constant((), dtype=torch.float32), state2=state2)
        else:
            state = QuantState(absmax=constant(blocks, dtype=torch.float32), shape=torch.Size((out, into)), dtype=torch.bfloat16, blocksize=64, code=code, quant_type='nf4')
        weight.quant_state, weight.quant_type, weight.compress_statistics, weight.blocksize = state, 'nf4', nested, 64
        weight.bnb_quantized, weight.module, weight.quant_storage = True, new, torch.uint8
        new.weight, new.quant_state, new.compute_type_is_set = weight, state, True
        if module.bias is not None: new.bias = module.bias
        parent, _, leaf = name.rpartition('.')
        setattr(model.get_submodule(parent), leaf, new)
    model.is_loaded_in_4bit = True
    model.is_quantized = True
    notes.append('4-bit weights are fake storages inside bitsandbytes Linear4bit; its own matrix product, dequantization and backward run on their registered fake kernels')


def quantization(model):
    """Packed constants that are no parameters of the module."""
    tensors = []
    for module in model.modules():
        state = getattr(module, 'quant_state', None)
        if state is None or not hasattr(state, 'absmax'): continue
        tensors += [state.absmax, state.code]
        if state.nested: tensors += [state.state2.absmax, state.state2.code, state.offset]
    return tensors


def upcast(model):
    """PEFT's prepare_model_for_kbit_training: freeze, raise every 16-bit leftover to FP32."""
    for module in model.modules():
        for name, p in list(module._parameters.items()):
            if p is None: continue
            if p.dtype in (torch.bfloat16, torch.float16): module._parameters[name] = torch.nn.Parameter(p.detach().to(torch.float32), requires_grad=False)
            else: p.requires_grad = False
    model.tie_weights()
