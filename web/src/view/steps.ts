// The three steps: model, training, hardware. Lists, limits and defaults come from the catalogue's options.
import { html, nothing, type TemplateResult } from 'lit-html';
import { live } from 'lit-html/directives/live.js';

import {
  applies,
  keyOf,
  kindOf,
  methodOf,
  optionAt,
  spreads,
  valueAt,
  type HardwareBy,
  type ModelBy,
  type Spread,
  type State,
} from '../form';
import type { CatalogueGpu, Option, SystemGroup } from '../wire';
import type { Context } from './context';
import {
  checkbox,
  describedBy,
  field,
  hintLine,
  idOf,
  problemLine,
  problemsAt,
  radios,
  selectControl,
  textControl,
  type FieldShape,
} from './field';
import { disclosure } from './disclosure';
import { modelSearch, modelSize } from './model-search';
import { gpuName, parameterCount, valueName } from './words';

const shapeOf = ({ words }: Context, pointer: string): FieldShape => {
  const key = keyOf(pointer);
  return {
    pointer,
    label: words.t(`field.${key}`),
    hint: words.has(`hint.${key}`) ? words.t(`hint.${key}`) : undefined,
  };
};

// ---------------------------------------------------------------- any option of the catalogue

/** What the planner used where the visitor left the choice to it. */
const understood = ({ report }: Context, pointer: string): unknown => valueAt(report.request, pointer);

function automatic(context: Context, pointer: string): string {
  const value = understood(context, pointer);
  const known = value !== undefined && value !== null;
  return known
    ? context.words.t('automatic_value', { value: valueName(context, pointer, value) })
    : context.words.t('automatic');
}

function choiceField(context: Context, option: Option, values: readonly string[]): TemplateResult {
  const { pointer } = option;
  const free = option.default === null;
  const entries = [
    ...(free ? [{ value: '', text: automatic(context, pointer) }] : []),
    ...values.map((value) => ({
      value,
      text: valueName(context, pointer, value === 'true' || value === 'false' ? value === 'true' : value),
    })),
  ];
  const chosen = String(context.state.training[pointer] ?? option.default ?? '');
  const shape = shapeOf(context, pointer);
  const hintKey = `hint.${keyOf(pointer)}.${chosen || String(understood(context, pointer))}`;
  const told = context.words.has(hintKey) ? { ...shape, hint: context.words.t(hintKey) } : shape;
  const onChange = (value: string) => context.actions.choose(pointer, value === '' ? null : value);
  return field(context, told, selectControl(context, told, entries, chosen, onChange));
}

/** The names of a small range, where its numbers have names: the stages of ZeRO. */
function namedRange({ words }: Context, { pointer, minimum, maximum }: Option): string[] {
  if (minimum === undefined || maximum === undefined || !words.has(`value.${keyOf(pointer)}.${minimum}`)) return [];
  return Array.from({ length: maximum - minimum + 1 }, (_, index) => String(minimum + index));
}

function numberField(context: Context, option: Option): TemplateResult {
  const { pointer } = option;
  const names = namedRange(context, option);
  if (names.length > 0) return choiceField(context, option, names);
  const shape = shapeOf(context, pointer);
  const value = context.state.training[pointer] ?? option.default;
  const text = typeof value === 'number' ? context.words.t('number', { value }) : String(value ?? '');
  const free = option.default === null;
  const onInput = (typed: string) => context.actions.choose(pointer, free && typed.trim() === '' ? null : typed);
  return field(context, shape, textControl(context, shape, text, onInput, free ? automatic(context, pointer) : ''));
}

function switchField(context: Context, option: Option): TemplateResult {
  const { pointer } = option;
  const shape = shapeOf(context, pointer);
  const checked = Boolean(context.state.training[pointer] ?? option.default);
  return html`<div class="field switch">
    ${checkbox(idOf(pointer), shape.label, checked, (value) => context.actions.choose(pointer, value))}
    ${problemLine(context, pointer)}${hintLine(shape)}
  </div>`;
}

const all = 'all-linear';

/** Names of modules: all linear layers, or those ticked. */
function choicesField(context: Context, option: Option): TemplateResult {
  const { pointer } = option;
  const shape = shapeOf(context, pointer);
  const chosen = (context.state.training[pointer] ?? option.default) as string[];
  const onChange = (value: string, on: boolean) => {
    if (value === all)
      return context.actions.choose(pointer, on ? [all] : ['q', 'v'].filter((name) => option.values?.includes(name)));
    const names = chosen.filter((name) => name !== value && name !== all);
    return context.actions.choose(pointer, on ? [...names, value] : names);
  };
  const values = (option.values ?? []).filter((value) => value === all || !chosen.includes(all));
  return html`<fieldset class="field choices">
    <legend>${shape.label}</legend>
    ${values.map((value) =>
      checkbox(`${idOf(pointer)}-${value}`, valueName(context, pointer, value), chosen.includes(value), (on) =>
        onChange(value, on),
      ),
    )}
    ${problemLine(context, pointer)}${hintLine(shape)}
  </fieldset>`;
}

export function optionField(context: Context, pointer: string): TemplateResult | typeof nothing {
  const option = optionAt(context.catalogue, pointer);
  if (!option || !applies(pointer, context.state, context.catalogue)) return nothing;
  const values = option.values ?? [];
  switch (kindOf(option)) {
    case 'choices':
      return choicesField(context, option);
    case 'number':
    case 'text':
      return numberField(context, option);
    case 'switch':
      return switchField(context, option);
    case 'maybe':
      return choiceField(context, option, ['true', 'false']);
    case 'choice':
      return values.length > 1 || problemsAt(context, pointer).length > 0
        ? choiceField(context, option, values)
        : nothing;
  }
}

// ---------------------------------------------------------------- step 1: model

function configField(context: Context): TemplateResult {
  const { words, state, actions } = context;
  const shape: FieldShape = {
    pointer: '/model/config',
    label: words.t('model.config'),
    hint: words.t('model.config_hint'),
  };
  const take = (text: string) => actions.change({ config: text });
  const onDrop = async (event: DragEvent) => {
    const file = event.dataTransfer?.files[0];
    if (!file) return;
    event.preventDefault();
    take(await file.text());
  };
  const onFile = async (event: Event) => {
    const file = (event.target as HTMLInputElement).files?.[0];
    if (file) take(await file.text());
  };
  return html`<div class="field ${problemsAt(context, shape.pointer).length > 0 ? 'wrong' : ''}">
    <label for=${idOf(shape.pointer)}>${shape.label}</label>
    <textarea
      id=${idOf(shape.pointer)}
      rows="6"
      spellcheck="false"
      autocomplete="off"
      placeholder=${'{ "model_type": "llama", … }'}
      .value=${live(state.config)}
      .defaultValue=${state.config}
      aria-invalid=${problemsAt(context, shape.pointer).length > 0 ? 'true' : 'false'}
      aria-describedby=${describedBy(context, shape)}
      @input=${(event: Event) => take((event.target as HTMLTextAreaElement).value)}
      @dragover=${(event: Event) => event.preventDefault()}
      @drop=${onDrop}
    ></textarea>
    ${problemLine(context, shape.pointer)}${hintLine(shape)}
    <label class="file"
      >${words.t('model.file')} <input type="file" accept=".json,application/json" @change=${onFile}
    /></label>
  </div>`;
}

function sizeField(context: Context): TemplateResult {
  const { words, state, actions } = context;
  const shape: FieldShape = {
    pointer: '/model/parameters',
    label: words.t('model.size'),
    hint: words.t('model.size_hint'),
  };
  return field(
    context,
    shape,
    textControl(context, shape, state.size, (size) => actions.change({ size })),
  );
}

function modelFacts(context: Context): TemplateResult | typeof nothing {
  const { words, catalogue, state, report } = context;
  const model = catalogue.models.find((entry) => entry.id === state.model);
  if (state.modelBy !== 'catalogue') {
    if (!report.model || context.problems.length > 0) return nothing;
    const size = parameterCount(context, report.model.parameters);
    return html`<p class="facts">${size} · ${words.t('model.layers', { count: report.model.layers })}</p>`;
  }
  if (!model) return nothing;
  const facts = [modelSize(context, model), words.t('model.layers', { count: model.layers })];
  if (model.max_position_embeddings > 0)
    facts.push(words.t('model.context', { tokens: model.max_position_embeddings }));
  return html`<p class="facts">${facts.join(' · ')}</p>`;
}

export function modelStep(context: Context): TemplateResult {
  const { words, state, actions } = context;
  const ways: ModelBy[] = ['catalogue', 'config', 'size'];
  const entries = ways.map((value) => ({ value, title: words.t(`model.by_${value}`) }));
  const fields: Record<ModelBy, () => TemplateResult> = {
    catalogue: () => modelSearch(context, { pointer: '/model', label: words.t('model.search') }),
    config: () => configField(context),
    size: () => sizeField(context),
  };
  return html`<h2 id="step-model"><span class="step-number" aria-hidden="true">1</span>${words.t('step.model')}</h2>
    <fieldset>
      <legend class="visually-hidden">${words.t('model.by')}</legend>
      ${radios('model-by', entries, state.modelBy, (value) => actions.change({ modelBy: value as ModelBy }))}
    </fieldset>
    ${fields[state.modelBy]()} ${modelFacts(context)}`;
}

// ---------------------------------------------------------------- step 2: training

// What most people choose between; the others open below.
const commonMethods = ['full', 'lora', 'qlora'];

function methodField(context: Context): TemplateResult {
  const { words, catalogue, state, actions } = context;
  const pointer = '/training/method';
  const chosen = methodOf(state, catalogue);
  const entry = (value: string) => ({
    value,
    title: words.t(`value.method.${value}`),
    text: words.t(`hint.method.${value}`),
  });
  const values = optionAt(catalogue, pointer)?.values ?? [];
  const others = values.filter((value) => !commonMethods.includes(value));
  const onChange = (value: string) => actions.choose(pointer, value);
  const cards = (list: string[]) => radios('method', list.map(entry), chosen, onChange);
  return html`<fieldset class="field methods">
    <legend>${words.t('field.method')}</legend>
    ${cards(values.filter((value) => commonMethods.includes(value)))}
    ${disclosure(
      context,
      {
        key: 'methods',
        kind: 'other-methods',
        summary: words.t('method.others', { count: others.length }),
        forced: others.includes(chosen),
      },
      () => cards(others),
    )}
    ${problemLine(context, pointer)}
  </fieldset>`;
}

const inSight = ['/training/trainable_layers', '/training/sequence_length', '/training/micro_batch'];
const inSightWide = ['/training/precision', '/training/base_weights'];

const detailGroups: readonly [string, readonly string[]][] = [
  [
    'adapters',
    [
      '/training/lora/rank',
      '/training/lora/dropout',
      '/training/lora/rslora',
      '/training/lora/targets',
      '/training/lora/modules_to_save',
      '/training/kbit_upcast',
    ],
  ],
  [
    'optimizer',
    [
      '/training/optimizer/name',
      '/training/optimizer/states',
      '/training/optimizer/paged',
      '/training/optimizer/foreach',
      '/training/optimizer/fused',
      '/training/optimizer/in_backward',
      '/training/optimizer/rank',
      '/training/optimizer/momentum',
      '/training/optimizer/master_weights',
      '/training/ema',
    ],
  ],
  [
    'memory',
    [
      '/training/recompute',
      '/training/recompute_modules',
      '/training/cross_entropy',
      '/training/logits_upcast',
      '/training/attention',
      '/training/kernels',
      '/training/recurrence',
      '/training/fp8_parameters',
      '/training/mtp_layers',
      '/training/fp32_gradients',
      '/training/moe/imbalance',
      '/training/moe/capacity_factor',
      '/training/offload/optimizer',
      '/training/offload/parameters',
      '/training/offload/activations',
    ],
  ],
  [
    'software',
    [
      '/training/framework',
      '/training/framework_version',
      '/training/trainer',
      '/training/objective',
      '/training/reference',
      '/training/value_model',
      '/training/reward_model',
      '/training/generation/completion_length',
      '/training/generation/generations',
      '/training/generation/engine_share',
      '/training/packing',
      '/training/global_batch',
      '/training/compile',
      '/training/tokens',
    ],
  ],
];

/** Options that a newer planner offers and this page does not know keep a place of their own. */
function otherOptions({ catalogue }: Context): string[] {
  const placed = new Set([
    '/training/method',
    ...inSight,
    ...inSightWide,
    ...detailGroups.flatMap(([, pointers]) => pointers),
  ]);
  return catalogue.options
    .map((option) => option.pointer)
    .filter((pointer) => pointer.startsWith('/training/') && !placed.has(pointer));
}

function detailGroup(context: Context, name: string, pointers: readonly string[]): TemplateResult | typeof nothing {
  const fields = pointers.map((pointer) => optionField(context, pointer)).filter((entry) => entry !== nothing);
  if (fields.length === 0) return nothing;
  return html`<fieldset class="detail-group">
    <legend>${context.words.t(`details.${name}`)}</legend>
    <div class="grid">${fields}</div>
  </fieldset>`;
}

function hasProblemIn(context: Context, groups: readonly (readonly [string, readonly string[]])[]): boolean {
  return groups.some(([, pointers]) => pointers.some((pointer) => problemsAt(context, pointer).length > 0));
}

export function trainingStep(context: Context): TemplateResult {
  const { words } = context;
  return html`<h2 id="step-training">
      <span class="step-number" aria-hidden="true">2</span>${words.t('step.training')}
    </h2>
    ${methodField(context)}
    <div class="grid">${inSight.map((pointer) => optionField(context, pointer))}</div>
    ${inSightWide.map((pointer) => optionField(context, pointer))}`;
}

export function detailsField(context: Context): TemplateResult {
  const groups: readonly (readonly [string, readonly string[]])[] = [...detailGroups, ['other', otherOptions(context)]];
  return disclosure(
    context,
    { key: 'details', kind: 'more', summary: context.words.t('details'), forced: hasProblemIn(context, groups) },
    () => groups.map(([name, pointers]) => detailGroup(context, name, pointers)),
  );
}

// ---------------------------------------------------------------- step 3: hardware

const gpuGroups: readonly SystemGroup[] = ['workstation', 'pcie_server', 'hgx', 'rack'];

function gpuEntry(context: Context, gpu: CatalogueGpu) {
  const { words } = context;
  const status = gpu.status === 'shipping' ? '' : ` (${words.t(`status.${gpu.status}`)})`;
  const told = gpu.name.replace(/\s/g, '').includes(`${gpu.memory_gb}GB`);
  return {
    value: gpu.id,
    text: `${gpuName(context, gpu.id)}${told ? '' : `, ${gpu.memory_gb}\u00a0GB`}${status}`,
    group: words.t(`group.${gpu.group}`),
  };
}

function gpuFields(context: Context): TemplateResult {
  const { words, catalogue, state, actions } = context;
  const gpus = gpuGroups.flatMap((group) => catalogue.gpus.filter((gpu) => gpu.group === group));
  const gpuShape = shapeOf(context, '/hardware/gpu');
  const countShape = shapeOf(context, '/hardware/count');
  const entries = gpus.map((gpu) => gpuEntry(context, gpu));
  const ways = spreads.map((value) => ({
    value,
    title: words.t(`spread.${value}`),
    text: words.t(`spread.${value}.text`),
  }));
  return html`<div class="grid gpu">
      ${field(
        context,
        gpuShape,
        selectControl(context, gpuShape, entries, state.gpu, (gpu) => actions.change({ gpu })),
      )}
      ${field(
        context,
        countShape,
        textControl(context, countShape, state.count, (count) => actions.change({ count })),
      )}
    </div>
    ${
      state.count.trim() === '1'
        ? nothing
        : html`<fieldset class="field">
            <legend>${words.t('spread')}</legend>
            ${radios('spread', ways, state.zero, (zero) => actions.change(spreadPatch(context, zero as Spread)))}
            ${problemLine(context, '/layout')}
          </fieldset>`
    }
    ${state.count.trim() === '1' ? nothing : optionField(context, '/hardware/per_node')}
    ${state.zero === 'own' && state.count.trim() !== '1' ? layoutFields(context) : nothing}`;
}

const layoutPointers = [
  '/layout/dp',
  '/layout/zero',
  '/layout/tp',
  '/layout/sp',
  '/layout/pp',
  '/layout/vpp',
  '/layout/first_stage_layers',
  '/layout/last_stage_layers',
  '/layout/cp',
  '/layout/cp_exchange',
  '/layout/ep',
  '/layout/etp',
  '/layout/shard',
];

/** By hand: it starts from what was chosen, so that the first picture is the same. */
function spreadPatch({ state }: Context, zero: Spread): Partial<State> {
  if (zero !== 'own') return { zero };
  const start = { '/layout/dp': state.count, '/layout/zero': state.zero === '0' ? '0' : '3' };
  return { zero, training: { ...start, ...state.training } };
}

function layoutFields(context: Context): TemplateResult {
  const { words, catalogue } = context;
  const rest = catalogue.options
    .map((option) => option.pointer)
    .filter((pointer) => pointer.startsWith('/layout/') && !layoutPointers.includes(pointer));
  return html`<fieldset class="field layout-fields">
    <legend>${words.t('layout.own')}</legend>
    <p class="note">${words.t('layout.own_text')}</p>
    <div class="grid">${[...layoutPointers, ...rest].map((pointer) => optionField(context, pointer))}</div>
  </fieldset>`;
}

const searchText = ({ words }: Context): TemplateResult =>
  html`<p class="facts">${words.t('hardware.search_text')} <a href="#hardware">${words.t('hardware.to_list')}</a></p>`;

export function hardwareStep(context: Context): TemplateResult {
  const { words, state, actions } = context;
  const ways = ['gpu', 'search'] as const;
  const entries = ways.map((value) => ({ value, title: words.t(`hardware.by_${value}`) }));
  return html`<h2 id="step-hardware">
      <span class="step-number" aria-hidden="true">3</span>${words.t('step.hardware')}
    </h2>
    <fieldset>
      <legend class="visually-hidden">${words.t('hardware.by')}</legend>
      ${radios('hardware-by', entries, state.hardwareBy, (value) => actions.change({ hardwareBy: value as HardwareBy }))}
    </fieldset>
    ${state.hardwareBy === 'gpu' ? gpuFields(context) : searchText(context)}`;
}
