// What the visitor filled in, as text that survives a link and a saved page, and the request that it means.
import { readNumber, units, type Unit } from './format';
import { languages, type Language } from './i18n/i18n';
import type { Catalogue, Notice, Option, PlanRequest } from './wire';

export type Choice = string | boolean | string[];
export type ModelBy = 'catalogue' | 'config' | 'size';
export type HardwareBy = 'search' | 'gpu';

/** search: the planner's choice; 3: sharded; 0: a copy on each GPU; own: by the fields of the layout. */
export type Spread = 'search' | '3' | '0' | 'own';
export const spreads: readonly Spread[] = ['search', '3', '0', 'own'];

export interface State {
  language: Language;
  unit: Unit;
  modelBy: ModelBy;
  model: string; // catalogue id, or what was typed
  config: string; // text of a config.json
  size: string; // billions of parameters, as typed
  training: Record<string, Choice>; // by JSON Pointer, of training, layout and hardware; an absent field has its default
  hardwareBy: HardwareBy;
  gpu: string;
  count: string;
  zero: Spread;
  serveContext: string; // tokens; empty: the sequence length
  serveUsers: string;
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
  zero: 'search',
  serveContext: '',
  serveUsers: '1',
};

// ---------------------------------------------------------------- options

export type Kind = 'choice' | 'choices' | 'number' | 'switch' | 'maybe' | 'text';

export function kindOf(option: Option): Kind {
  if (Array.isArray(option.default)) return 'choices';
  if (option.format) return 'text';
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

const adapterMethods = new Set(['lora', 'dora', 'qlora']);
const generating = new Set(['ppo', 'grpo']);
const comparing = new Set(['dpo', 'ppo', 'grpo']);

const chosen = (state: State, catalogue: Catalogue, pointer: string): string =>
  String(state.training[pointer] ?? optionAt(catalogue, pointer)?.default ?? '');

export const methodOf = (state: State, catalogue: Catalogue): string => chosen(state, catalogue, '/training/method');

/** Whether a field means anything beside what is chosen; one that does not is neither shown nor sent. */
export function applies(pointer: string, state: State, catalogue: Catalogue): boolean {
  const method = methodOf(state, catalogue);
  const objective = chosen(state, catalogue, '/training/objective');
  const framework = chosen(state, catalogue, '/training/framework');
  // What was filled in all the same stays in sight, for the planner to say what is wrong with it.
  const isOffered = optionAt(catalogue, pointer)?.frameworks?.includes(framework) ?? true;
  if (!isOffered && state.training[pointer] === undefined) return false;
  if (pointer.startsWith('/layout/')) return state.hardwareBy === 'gpu' && state.zero === 'own';
  if (pointer === '/hardware/per_node') return state.hardwareBy === 'gpu' && state.count.trim() !== '1';
  if (pointer.startsWith('/training/lora/')) return adapterMethods.has(method);
  if (pointer.startsWith('/training/generation/')) return generating.has(objective);
  if (pointer === '/training/reference') return comparing.has(objective);
  if (pointer === '/training/value_model') return objective === 'ppo';
  if (pointer === '/training/reward_model') return generating.has(objective);
  if (pointer === '/training/recompute_modules') return chosen(state, catalogue, '/training/recompute') === 'selective';
  if (pointer === '/training/mtp_layers') return !adapterMethods.has(method);
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

/** The fields below one part of the request: `/training`, `/layout` or `/hardware`. */
function partOf(state: State, catalogue: Catalogue, part: string): Record<string, unknown> {
  const fields: Record<string, unknown> = {};
  for (const [pointer, choice] of Object.entries(state.training)) {
    if (pointer.startsWith(`${part}/`) && applies(pointer, state, catalogue))
      setAt(fields, pointer, wireValue(optionAt(catalogue, pointer), choice));
  }
  return fields;
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
  const hardware = { gpu: state.gpu, count, ...partOf(state, catalogue, '/hardware') };
  if (state.zero === 'own') return { hardware, layout: partOf(state, catalogue, '/layout') };
  if (state.zero === 'search' && count !== 1) return { hardware };
  const zero = count === 1 ? 0 : Number(state.zero);
  return { hardware, ...(typeof count === 'number' && { layout: { dp: count, zero } }) };
}

function servingOf(state: State, catalogue: Catalogue): Record<string, unknown> {
  const number = (pointer: string, text: string) => readNumber(text, isGrouped(optionAt(catalogue, pointer)));
  const serving = {
    ...(state.serveContext.trim() && { context: number('/serving/context', state.serveContext) }),
    ...(state.serveUsers.trim() !== initialState.serveUsers && { users: number('/serving/users', state.serveUsers) }),
  };
  return Object.keys(serving).length > 0 ? { serving } : {};
}

/** The request, or why the text of the form is none. Everything else is for the planner to judge. */
export function requestOf(state: State, catalogue: Catalogue): PlanRequest | Notice {
  try {
    const parts = {
      model: modelOf(state),
      training: partOf(state, catalogue, '/training'),
      ...placeOf(state, catalogue),
      ...servingOf(state, catalogue),
    };
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

const known: readonly string[] = ['dp', 'zero'];
const isSpread = (layout: NonNullable<PlanRequest['layout']>, count: number): boolean =>
  layout.dp === count &&
  (layout.zero === 0 || layout.zero === 3) &&
  Object.entries(layout).every(
    ([name, value]) => known.includes(name) || value === null || value === 1 || value === false,
  );

function placeState(request: PlanRequest): Partial<State> {
  const { hardware, layout } = request;
  if (!hardware) return { hardwareBy: 'search' };
  const count = hardware.count ?? 1;
  const place = { hardwareBy: 'gpu' as const, gpu: hardware.gpu, count: String(count) };
  if (!layout) return { ...place, zero: 'search' };
  if (count === 1) return place;
  return { ...place, zero: isSpread(layout, count) ? (String(layout.zero) as Spread) : 'own' };
}

/** The state that sends this request: how a suggestion is applied. */
export function withRequest(state: State, request: PlanRequest, catalogue: Catalogue): State {
  const place = placeState(request);
  const leaves = [
    ...leavesOf(request.training, '/training'),
    ...leavesOf({ per_node: request.hardware?.per_node }, '/hardware'),
    ...(place.zero === 'own' ? leavesOf(request.layout, '/layout') : []),
  ].filter(([pointer, choice]) => !isDefault(catalogue, pointer, choice));
  return {
    ...state,
    ...modelState(request.model),
    ...place,
    training: Object.fromEntries(
      leaves.map(([pointer, choice]) => [pointer, choiceFor(optionAt(catalogue, pointer), choice)]),
    ),
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
  'serveContext',
  'serveUsers',
] as const;
const allowed: Partial<Record<(typeof plainFields)[number], readonly string[]>> = {
  language: languages,
  unit: units,
  modelBy: ['catalogue', 'config', 'size'],
  hardwareBy: ['search', 'gpu'],
  zero: spreads,
};

// The text of a link: `v=1&model=…&method=qlora&lora.rank=16`. Names of later versions are left unread, and said so.
const version = '1';

/** The state as a query: what the link and the saved page hold, with the plans that were kept. */
export function textOf(state: State, plans: readonly string[] = []): string {
  const query = new URLSearchParams({ v: version, language: state.language });
  for (const name of plainFields) if (state[name] !== initialState[name]) query.set(name, state[name]);
  for (const [pointer, choice] of Object.entries(state.training)) {
    query.set(keyOf(pointer), Array.isArray(choice) ? choice.join(',') : String(choice));
  }
  for (const plan of plans) query.append('plan', plan);
  return query.toString().replaceAll('%2F', '/').replaceAll('%2C', ',');
}

function choiceFromText(option: Option, text: string): Choice | null {
  const kind = kindOf(option);
  if (kind === 'choices') return text.split(',').filter(Boolean);
  if (kind === 'switch' || kind === 'maybe') {
    if (text !== 'true' && text !== 'false') return null;
    return kind === 'switch' ? text === 'true' : text;
  }
  if (kind === 'choice') return option.values!.includes(text) ? text : null;
  return text;
}

export interface ReadState {
  state: State;
  unread: string[]; // what of the text could not be used: "lora.rnak=8"
  plans: string[]; // kept ones, each a text like this
}

/** What a text says, and what of it could not be read; null when it says nothing. */
export function stateOf(text: string, catalogue: Catalogue): ReadState | null {
  const entries = [...new URLSearchParams(text)];
  if (entries.length === 0) return null;
  const byKey = new Map(catalogue.options.map((option) => [keyOf(option.pointer), option]));
  const state: State = { ...initialState, training: {} };
  const [unread, plans]: [string[], string[]] = [[], []];
  for (const [name, value] of entries) {
    if (name === 'plan') {
      plans.push(value);
    } else if (name === 'v') {
      if (value !== version) unread.push(`v=${value}`);
    } else if ((plainFields as readonly string[]).includes(name)) {
      if (allowed[name as keyof typeof allowed]?.includes(value) ?? true) Object.assign(state, { [name]: value });
      else unread.push(`${name}=${value}`);
    } else {
      const option = byKey.get(keyOf(name));
      const choice = option ? choiceFromText(option, value) : null;
      if (option && choice !== null) state.training[option.pointer] = choice;
      else unread.push(value ? `${name}=${value}` : name);
    }
  }
  // A link may set nothing but the language.
  if (Object.keys(state.training).length === 0) state.training = initialState.training;
  return { state, unread, plans };
}
