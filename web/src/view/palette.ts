// The order in which components are stacked, static ones first. Their colours are the classes `c-<id>` of styles.css.
import type { Component } from '../wire';

export const staticComponents = [
  'frozen_weights',
  'weights',
  'quantization_constants',
  'master_weights',
  'adapters',
  'gradients',
  'optimizer_states',
  'buffers',
  'cublas_workspace',
] as const;

export const temporaryComponents = [
  'autocast_weights',
  'gathered_parameters',
  'checkpoints',
  'activations_embedding',
  'activations_norm',
  'activations_attention',
  'activations_mlp',
  'activations_moe',
  'activations_ssm',
  'activations_adapter',
  'activations_residual',
  'logits',
  'activation_gradients',
  'dequantized_weights',
  'working_memory',
  'optimizer_temporaries',
  'communication_buffers',
  'kv_cache',
] as const;

export const componentsBeyond = ['allocator_slack', 'cuda_context', 'nccl_buffers', 'inference_engine'] as const;

const order: readonly string[] = [...staticComponents, ...temporaryComponents, ...componentsBeyond];

export function stackingPlace(id: string): number {
  const place = order.indexOf(id);
  return place < 0 ? order.length : place;
}

export const stacked = (components: readonly Component[]): Component[] =>
  [...components].sort(
    (a, b) =>
      Number(a.group === 'temporary') - Number(b.group === 'temporary') || stackingPlace(a.id) - stackingPlace(b.id),
  );

export const colourClass = (id: string): string => (order.includes(id) ? `c-${id}` : 'c-unknown');

/** About how wide a text is at `size` pixels: enough to decide whether a label fits. */
export const textWidth = (text: string, size: number): number => text.length * size * 0.56;
