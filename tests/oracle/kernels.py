"""Kernels that PyTorch, bitsandbytes and flash-attn choose or fill in on a real device, and what each of them allocates.

scaled_dot_product_attention: the C++ front door asks the device which kernel it may use. Here the choice is made in Python by the
same constraints, and the same ATen operations are called, so autograd saves what it saves on a device:
  flash      16-bit, no mask, head size at most 256          saves q, k, v, out, log-sum-exp (and two scalars)
  efficient  any dtype, mask allowed (expanded to heads)    saves q, k, v, out, log-sum-exp (and two scalars), the mask as a bias
Both take grouped key-value heads in the pinned version (its table of constraints says so). In versions whose efficient kernel does not, FP32
with grouped heads falls to the math composition, which keeps s x s tensors.
flash_attention_2: the flash-attn package's function keeps q, k, v, out and log-sum-exp in (batch, length, heads, size); the same ATen flash
operation on transposed views keeps the same storages.
Workspaces that a kernel allocates and frees itself are invisible to a fake kernel; `transients` adds them.
"""
import torch

aten = torch.ops.aten


def _numel(*sizes):
    n = 1
    for size in sizes: n *= int(size)
    return n


def _round(n, to):
    return -(-n // to) * to


def _flash_backward(args, out):
    """FP32 accumulator of the query gradient, row sums, and per-query-head key and value gradients under grouped heads."""
    q, k = args[1], args[2]
    batch, heads, length, size = q.shape
    kv_heads, kv_length = k.shape[1], k.shape[2]
    rows = _round(length, 128)
    width = _round(size, 32) if size <= 192 else 256
    extra = 4 * _numel(batch, heads, rows, width) + 4 * _numel(batch, heads, rows)
    if kv_heads != heads: extra += 2 * q.element_size() * _numel(batch, heads, kv_length, size)
    return extra


def _efficient_backward(args, out):
    q = args[1]
    batch, heads, length, size = q.shape
    k_heads = args[2].shape[1]
    extra = 4 * _numel(batch, heads, length)
    if k_heads != heads: extra += 2 * q.element_size() * _numel(batch, heads, args[2].shape[2], size)      # gradients per query head, summed to groups
    if q.dtype == torch.float32: extra += 4 * _numel(batch, heads, length, size)      # product of gradient and output, then its row sum
    else: extra += 4 * _numel(batch, heads, length, size)                              # FP32 accumulator of the query gradient
    return extra


def _dequantized(args, out):
    """Above a few hundred rows bitsandbytes dequantizes the weight into a temporary and calls the ordinary matrix product."""
    a, shape = args[0], args[2]
    rows = a.numel() // a.shape[-1]
    nested = 4 * _numel(*shape) // 64
    return a.element_size() * _numel(*shape) + nested if rows > 256 else 0


def transients():
    table = {aten._scaled_dot_product_flash_attention_backward.default: _flash_backward,
             aten._scaled_dot_product_efficient_attention_backward.default: _efficient_backward}
    try:
        import bitsandbytes  # noqa: F401
        table[torch.ops.bitsandbytes.gemm_4bit.default] = _dequantized
    except ImportError: pass
    return table


chosen = set()


def _flash(q, k, v, dropout, causal, scale):
    size = q.shape[-1]
    if size % 8:
        q, k, v = (torch.nn.functional.pad(t, (0, 8 - size % 8)) for t in (q, k, v))
    out = aten._scaled_dot_product_flash_attention(q, k, v, dropout, causal, False, scale=scale)[0]
    return out[..., :size] if size % 8 else out


def attention(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    if torch.is_autocast_enabled('cuda'):                               # on autocast's 16-bit list
        to = torch.get_autocast_dtype('cuda')
        q, k, v = (t.to(to) if t.dtype == torch.float32 else t for t in (q, k, v))
        if attn_mask is not None and attn_mask.dtype == torch.float32: attn_mask = attn_mask.to(to)
    scale = scale if scale is not None else q.shape[-1] ** -0.5
    if attn_mask is None and q.dtype in (torch.bfloat16, torch.float16) and q.shape[-1] == v.shape[-1] <= 256:
        chosen.add('flash')
        return _flash(q, k, v, dropout_p, is_causal, scale)
    chosen.add('efficient')
    bias = None
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool: attn_mask = torch.zeros_like(attn_mask, dtype=q.dtype).masked_fill_(attn_mask.logical_not(), float('-inf'))
        bias = attn_mask.expand(q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    needs = any(t.requires_grad for t in (q, k, v))
    return aten._scaled_dot_product_efficient_attention(q, k, v, bias, needs, dropout_p, is_causal, scale=scale)[0]


def flash_attention_2(module, query, key, value, attention_mask, dropout=0.0, scaling=None, **kwargs):
    if query.dtype == torch.float32:
        to = torch.get_autocast_dtype('cuda') if torch.is_autocast_enabled('cuda') else torch.bfloat16
        query, key, value = query.to(to), key.to(to), value.to(to)
    chosen.add('flash')
    out = _flash(query, key, value, dropout, True, scaling if scaling is not None else query.shape[-1] ** -0.5)
    return out.transpose(1, 2), None


def install():
    torch.nn.functional.scaled_dot_product_attention = attention
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    ALL_ATTENTION_FUNCTIONS.register('fa2_on_aten', flash_attention_2)
    ALL_MASK_ATTENTION_FUNCTIONS.register('fa2_on_aten', ALL_MASK_ATTENTION_FUNCTIONS['flash_attention_2'])
    # Transformers takes fake tensors for a trace and then builds masks it would skip. Say no, and answer the one question that
    # reads values: every row of the batch is one sequence.
    from transformers import masking_utils
    from transformers.utils import import_utils
    import_utils.is_fake_tensor = lambda x: False
    masking_utils.find_packed_sequence_indices = lambda position_ids: None
