// What the visitor filled in, as text that survives a link and a saved page, and the request that it means.
import { readNumber, units, type Unit } from './format';
import { languages, type Language } from './i18n/i18n';
import type { Catalogue, Notice, Option, PlanRequest } from './wire';

export type Choice = string | boolean | string[];
export type ModelBy = 'catalogue' | 'config' | 'size';
export type HardwareBy = 'search' | 'gpu';

export interface State {
  language: Language;
  unit: Unit;
  modelBy: ModelBy;
  model: string; // catalogue id, or what was typed
  config: string; // text of a config.json
  size: string; // billions of parameters, as typed
  training: Record<string, Choice>; // by JSON Pointer; an absent field has its default
  hardwareBy: HardwareBy;
  gpu: string;
  count: string;
  zero: string; // 0: a copy on each GPU, 3: sharded
}

export const initialState: State = {
  language: 'nl',
  unit: 'GB',
  modelBy: 'catalogue',
  model: 'meta-llama/Llama-3.1-8B',
  config: '',
  size: '7',
  training: { '/training/method': 'qlora' },
  hardwareBy: 'gpu',
  gpu: 'rtx-4090',
  count: '1',
  zero: '3',
};

// ---------------------------------------------------------------- options

export type Kind = 'choice' | 'choices' | 'number' | 'switch' | 'maybe';

export function kindOf(option: Option): Kind {
  if (Array.isArray(option.default)) return 'choices';
  if (option.values) return 'choice';
  if (option.minimum !== undefined || option.maximum !== undefined) return 'number';
  return option.default === null ? 'maybe' : 'switch';
}

export const optionAt = (catalogue: Catalogue, pointer: string): Option | undefined =>
  catalogue.options.find((option) => option.pointer === pointer);

/** `/training/lora/rank` is worded under `lora.rank`. */
export const keyOf = (pointer: string): string =>
  pointer
    .replace(/^\/training\//, '')
    .replace(/^\//, '')
    .replaceAll('/', '.');

export const methodOf = (state: State, catalogue: Catalogue): string =>
  String(state.training['/training/method'] ?? optionAt(catalogue, '/training/method')?.default ?? '');

const adapterMethods = new Set(['lora', 'dora', 'qlora']);

/** Whether a field means anything for the chosen method; one that does not is neither shown nor sent. */
export function applies(pointer: string, method: string): boolean {
  if (pointer.startsWith('/training/lora/')) return adapterMethods.has(method);
  if (pointer === '/training/kbit_upcast') return method === 'qlora';
  if (pointer === '/training/trainable_layers') return method === 'freeze';
  return true;
}

/** A value of a document at a JSON Pointer. */
export function valueAt(document: unknown, pointer: string): unknown {
  let value: unknown = document;
  for (const name of pointer.split('/').slice(1)) value = (value as Record<string, unknown> | undefined)?.[name];
  return value;
}

// ---------------------------------------------------------------- state -> request

const isGrouped = (option: Option | undefined) => (option?.maximum ?? 0) >= 1000;

function wireValue(option: Option | undefined, choice: Choice): unknown {
  if (typeof choice !== 'string') return choice;
  if (option && kindOf(option) === 'number') return readNumber(choice, isGrouped(option));
  if (option && kindOf(option) === 'maybe') return choice === 'true';
  return choice;
}

function setAt(target: Record<string, unknown>, pointer: string, value: unknown): void {
  const names = pointer.split('/').slice(2);
  const last = names.pop()!;
  let place = target;
  for (const name of names) place = (place[name] ??= {}) as Record<string, unknown>;
  place[last] = value;
}

function trainingOf(state: State, catalogue: Catalogue): Record<string, unknown> {
  const training: Record<string, unknown> = {};
  const method = methodOf(state, catalogue);
  for (const [pointer, choice] of Object.entries(state.training)) {
    if (applies(pointer, method)) setAt(training, pointer, wireValue(optionAt(catalogue, pointer), choice));
  }
  return training;
}

function parametersOf(size: string): unknown {
  const billions = readNumber(size.replace(/\s*(b|mld\.?|miljard|billion)\s*$/i, ''), false);
  return typeof billions === 'number' ? Math.round(billions * 1e9) : size;
}

function modelOf(state: State): unknown {
  if (state.modelBy === 'size') return { parameters: parametersOf(state.size) };
  if (state.modelBy === 'config') return { config: JSON.parse(state.config) as unknown };
  return state.model;
}

function placeOf(state: State, catalogue: Catalogue): Record<string, unknown> {
  if (state.hardwareBy === 'search') return {};
  const count = readNumber(state.count, isGrouped(optionAt(catalogue, '/hardware/count')));
  const zero = count === 1 ? 0 : Number(state.zero);
  return { hardware: { gpu: state.gpu, count }, ...(typeof count === 'number' && { layout: { dp: count, zero } }) };
}

/** The request, or why the text of the form is none. Everything else is for the planner to judge. */
export function requestOf(state: State, catalogue: Catalogue): PlanRequest | Notice {
  try {
    const parts = { model: modelOf(state), training: trainingOf(state, catalogue), ...placeOf(state, catalogue) };
    return parts as PlanRequest; // values that the planner refuses are sent all the same, so that it says why
  } catch {
    return { code: state.config.trim() ? 'invalid_json' : 'missing_field', pointer: '/model/config', arguments: {} };
  }
}

// ---------------------------------------------------------------- request -> state

function leavesOf(value: unknown, pointer: string): [string, Choice][] {
  if (value === null || value === undefined) return [];
  if (Array.isArray(value)) return [[pointer, value.map(String)]];
  if (typeof value === 'object')
    return Object.entries(value).flatMap(([name, inner]) => leavesOf(inner, `${pointer}/${name}`));
  return [[pointer, typeof value === 'boolean' ? value : String(value)]];
}

function choiceFor(option: Option | undefined, choice: Choice): Choice {
  return option && kindOf(option) === 'maybe' ? String(choice) : choice;
}

function modelState(model: PlanRequest['model']): Partial<State> {
  if (typeof model === 'string') return { modelBy: 'catalogue', model };
  if ('id' in model) return { modelBy: 'catalogue', model: model.id };
  if ('config' in model) return { modelBy: 'config', config: JSON.stringify(model.config, null, 2) };
  return { modelBy: 'size', size: String(model.parameters / 1e9) };
}

/** Whether a request says the same without this leaf. The method always stays: the page starts from another one. */
function isDefault(catalogue: Catalogue, pointer: string, choice: Choice): boolean {
  if (pointer === '/training/method') return false;
  const option = optionAt(catalogue, pointer);
  return option ? option.default !== null && String(option.default) === String(choice) : choice === false;
}

/** The state that sends this request: how a suggestion is applied. */
export function withRequest(state: State, request: PlanRequest, catalogue: Catalogue): State {
  const leaves = leavesOf(request.training, '/training').filter(
    ([pointer, choice]) => !isDefault(catalogue, pointer, choice),
  );
  return {
    ...state,
    ...modelState(request.model),
    training: Object.fromEntries(
      leaves.map(([pointer, choice]) => [pointer, choiceFor(optionAt(catalogue, pointer), choice)]),
    ),
    ...(request.hardware
      ? { hardwareBy: 'gpu' as const, gpu: request.hardware.gpu, count: String(request.hardware.count ?? 1) }
      : { hardwareBy: 'search' as const }),
    ...(request.layout && (request.hardware?.count ?? 1) > 1 && { zero: String(request.layout.zero ?? 0) }),
  };
}

// ---------------------------------------------------------------- state <-> text

const plainFields = [
  'language',
  'unit',
  'modelBy',
  'model',
  'config',
  'size',
  'hardwareBy',
  'gpu',
  'count',
  'zero',
] as const;
const allowed: Partial<Record<(typeof plainFields)[number], readonly string[]>> = {
  language: languages,
  unit: units,
  modelBy: ['catalogue', 'config', 'size'],
  hardwareBy: ['search', 'gpu'],
};

/** The state as a query: what the link and the saved page hold. */
export function textOf(state: State): string {
  const query = new URLSearchParams();
  for (const name of plainFields) if (state[name] !== initialState[name]) query.set(name, state[name]);
  for (const [pointer, choice] of Object.entries(state.training)) {
    query.set(pointer, Array.isArray(choice) ? choice.join(',') : String(choice));
  }
  return query.toString().replaceAll('%2F', '/').replaceAll('%2C', ',');
}

function choiceFromText(option: Option | undefined, text: string): Choice {
  if (option ? kindOf(option) === 'switch' : text === 'true' || text === 'false') return text === 'true';
  if (option && kindOf(option) === 'choices') return text.split(',').filter(Boolean);
  return text;
}

export function stateOf(text: string, catalogue: Catalogue): State | null {
  const query = new URLSearchParams(text);
  if ([...query.keys()].length === 0) return null;
  const state: State = { ...initialState, training: {} };
  for (const name of plainFields) {
    const value = query.get(name);
    if (value !== null && (allowed[name]?.includes(value) ?? true))
      (state as unknown as Record<string, string>)[name] = value;
  }
  for (const [pointer, value] of query) {
    if (pointer.startsWith('/training/')) state.training[pointer] = choiceFromText(optionAt(catalogue, pointer), value);
  }
  // A link may set nothing but the language.
  if (Object.keys(state.training).length === 0) state.training = initialState.training;
  return state;
}
