// Sentences about values of the wire, shared by the views.
import { keyOf } from '../form';
import type { Arguments } from '../i18n/i18n';
import type { Notice } from '../wire';
import type { Context } from './context';

/** An enumerator of a field of the request: `nf4_dq` at `/training/base_weights`. */
export function valueName({ words }: Context, pointer: string, value: unknown): string {
  if (typeof value === 'boolean') return words.t(value ? 'yes' : 'no');
  if (Array.isArray(value)) return value.map(String).join(', ');
  const key = `value.${keyOf(pointer)}.${String(value)}`;
  return typeof value === 'number' ? words.t('number', { value }) : words.t(key);
}

/** A name of the catalogue, in the visitor's language where it is more than a maker's. */
const named = ({ words }: Context, name: string): string =>
  words.has(`name.${name}`) ? words.t(`name.${name}`) : name;

export const gpuName = (context: Context, id: string): string =>
  named(context, context.catalogue.gpus.find((gpu) => gpu.id === id)?.name ?? id);

export function systemName(context: Context, id: string): string {
  const system = context.catalogue.systems.find((entry) => entry.id === id);
  return named(context, system ? `${system.vendor} ${system.name}` : id);
}

export const modelName = ({ catalogue }: Context, id: string): string =>
  catalogue.models.find((model) => model.id === id)?.label ?? id;

/** "8.03 billion parameters" */
export function parameterCount({ words, format }: Context, count: number): string {
  const { value, scale } = format.large(count);
  return words.t(`parameters.${scale}`, { value });
}

/** "30.5 billion, 3.35 billion active": for a list. */
export function shortSize(
  { words, format }: Context,
  { parameters, active }: { parameters: number; active: number },
): string {
  const short = (count: number) => {
    const { value, scale } = format.large(count);
    return words.t(`size.${scale}`, { value });
  };
  if (active === 0 || active === parameters) return short(parameters);
  return words.t('size.active', { total: short(parameters), active: short(active) });
}

/** The name of the field at a pointer, or of the nearest one around it; empty for the whole request. */
export function fieldName({ words }: Context, pointer: string): string {
  for (let place = pointer; place !== ''; place = place.slice(0, place.lastIndexOf('/'))) {
    if (words.has(`field.${keyOf(place)}`)) return words.t(`field.${keyOf(place)}`);
  }
  return '';
}

const fieldArguments = new Set(['field', 'other']);
const typeArguments = new Set(['expected', 'found']);

/** `field` is the field that a `value` belongs to, where the notice names one. */
function argumentText(context: Context, name: string, value: string | number, field: string): string | number {
  const { words } = context;
  if (typeof value === 'number') return value;
  if (name === 'gpu') return gpuName(context, value);
  if (typeArguments.has(name)) return words.t(`type.${value}`);
  if (fieldArguments.has(name) && words.has(`field.${keyOf(value)}`)) return words.t(`field.${keyOf(value)}`);
  if (name === 'reason') return words.has(`reason.${value}`) ? words.t(`reason.${value}`) : value;
  const named = [`value.${name}.${value}`, `value.${field}.${value}`].find((key) => words.has(key));
  return named ? words.t(named) : value;
}

/** A problem or a warning in the visitor's language. */
export function noticeText(context: Context, kind: 'problem' | 'warning', notice: Notice): string {
  const args: Arguments = {};
  const field = String(notice.arguments['field'] ?? '');
  for (const [name, value] of Object.entries(notice.arguments)) args[name] = argumentText(context, name, value, field);
  const { words } = context;
  const text = words.t(`${kind}.${notice.code}`, args);
  const closest = kind === 'problem' && notice.arguments.closest;
  return closest
    ? `${text} ${words.t('problem.closest', { closest: argumentText(context, 'closest', closest, field) })}`
    : text;
}

/** An event of a training step: "backward pass, layer 32". Layers are counted from 1. */
export function eventName({ words }: Context, event: string, block: number | null): string {
  const name = words.t(`event.${event}`);
  return block === null ? name : words.t('event.in_layer', { event: name, layer: block + 1 });
}
