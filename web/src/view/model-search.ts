// The search box over the catalogue's models: an editable combobox with a list box, as the ARIA practices describe it.
import { html, nothing, type TemplateResult } from 'lit-html';
import { live } from 'lit-html/directives/live.js';

import type { CatalogueModel } from '../wire';
import type { Context } from './context';
import { describedBy, problemLine, problemsAt, type FieldShape } from './field';
import { modelName, parameterCount, shortSize } from './words';

const listId = 'model-list';
const optionId = (index: number) => `model-option-${index}`;

const plain = (text: string) =>
  text
    .toLowerCase()
    .replace(/[^a-z0-9.]+/g, ' ')
    .trim();
const haystack = (model: CatalogueModel) => plain([model.label, model.id, model.family, ...model.aliases].join(' '));

function found(models: CatalogueModel[], query: string): CatalogueModel[] {
  const terms = plain(query).split(' ').filter(Boolean);
  if (terms.length === 0) return models;
  const startsWith = (model: CatalogueModel) => plain(model.label).startsWith(terms.join(' '));
  const matches = models.filter((model) => terms.every((term) => haystack(model).includes(term)));
  return [...matches.filter(startsWith), ...matches.filter((model) => !startsWith(model))];
}

// What is open and typed; not part of the state, because it is over as soon as a model is chosen.
const search = { open: false, query: null as string | null, active: 0 };

function close(context: Context): void {
  search.open = false;
  search.query = null;
  context.actions.redrawForm();
}

function open(context: Context, query: string | null): void {
  search.open = true;
  search.query = query;
  const list = found(context.catalogue.models, query ?? '');
  search.active =
    query === null
      ? Math.max(
          0,
          list.findIndex((model) => model.id === context.state.model),
        )
      : 0;
  context.actions.redrawForm();
  revealActive();
}

function choose(context: Context, id: string): void {
  search.open = false;
  search.query = null;
  context.actions.change({ model: id });
}

function move(context: Context, by: number, list: CatalogueModel[]): void {
  search.active = Math.min(list.length - 1, Math.max(0, search.active + by));
  context.actions.redrawForm();
  revealActive();
}

function revealActive(): void {
  document.getElementById(optionId(search.active))?.scrollIntoView({ block: 'nearest' });
}

/** A name that no model has is still sent: the planner knows the closest one. */
function settle(context: Context, list: CatalogueModel[]): void {
  const typed = search.query?.trim();
  if (typed && list.length === 0) choose(context, typed);
  else if (search.open) close(context);
}

function onKey(event: KeyboardEvent, context: Context, list: CatalogueModel[]): void {
  const steps: Record<string, number> = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8 };
  const step = steps[event.key];
  if (step !== undefined) {
    event.preventDefault();
    if (search.open) move(context, step, list);
    else open(context, null);
  } else if (event.key === 'Enter') {
    event.preventDefault();
    const active = list[search.active];
    if (search.open && active) choose(context, active.id);
    else settle(context, list);
  } else if (event.key === 'Escape' && search.open) {
    event.preventDefault();
    close(context);
  }
}

export function modelSize(context: Context, model: CatalogueModel): string {
  const total = parameterCount(context, model.parameters);
  if (model.active === 0 || model.active === model.parameters) return total;
  return context.words.t('parameters.active', { total, active: parameterCount(context, model.active) });
}

function optionItem(context: Context, model: CatalogueModel, index: number): TemplateResult {
  return html`<li
    role="option"
    id=${optionId(index)}
    aria-selected=${index === search.active ? 'true' : 'false'}
    class=${model.id === context.state.model ? 'current' : ''}
    @mousedown=${(event: Event) => event.preventDefault()}
    @click=${() => choose(context, model.id)}
  >
    <span class="option-name">${model.label}</span><span class="option-size">${shortSize(context, model)}</span>
    <span class="option-id">${model.id}</span>
  </li>`;
}

export function modelSearch(context: Context, shape: FieldShape): TemplateResult {
  const { words, catalogue, state } = context;
  const list = found(catalogue.models, search.query ?? '');
  const shown = search.query ?? modelName(context, state.model);
  return html`<div class="field ${problemsAt(context, shape.pointer).length > 0 ? 'wrong' : ''}">
    <label for="model-input">${shape.label}</label>
    <div class="combobox">
      <input
        id="model-input"
        type="text"
        role="combobox"
        autocomplete="off"
        spellcheck="false"
        aria-expanded=${search.open ? 'true' : 'false'}
        aria-controls=${listId}
        aria-autocomplete="list"
        aria-activedescendant=${search.open && list.length > 0 ? optionId(search.active) : nothing}
        aria-invalid=${problemsAt(context, shape.pointer).length > 0 ? 'true' : 'false'}
        aria-describedby=${describedBy(context, shape)}
        .value=${live(shown)}
        value=${shown}
        @input=${(event: Event) => open(context, (event.target as HTMLInputElement).value)}
        @click=${() => !search.open && open(context, null)}
        @focus=${(event: Event) => (event.target as HTMLInputElement).select()}
        @blur=${() => settle(context, list)}
        @keydown=${(event: KeyboardEvent) => onKey(event, context, list)}
      />
      <ul id=${listId} role="listbox" aria-label=${words.t('model.list')} ?hidden=${!search.open || list.length === 0}>
        ${search.open ? list.map((model, index) => optionItem(context, model, index)) : nothing}
      </ul>
      ${search.open && list.length === 0 ? html`<p class="combobox-empty">${words.t('model.none_found')}</p>` : nothing}
    </div>
    ${problemLine(context, shape.pointer)}
    <p class="visually-hidden" role="status">${search.open ? words.t('model.found', { count: list.length }) : ''}</p>
  </div>`;
}
