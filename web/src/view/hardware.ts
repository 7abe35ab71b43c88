// On what it fits, from the smallest.
import { html, nothing, type TemplateResult } from 'lit-html';

import type { HardwareSuggestion, SystemGroup } from '../wire';
import type { Context } from './context';
import { disclosure } from './disclosure';
import { checkbox } from './field';
import { ladder } from './ladder';
import { offer, offeredSystem } from './offer';
import { piece } from './piece';
import { gpuName } from './words';

const groups: readonly SystemGroup[] = ['workstation', 'pcie_server', 'hgx', 'rack'];
const firstFew = 4;

// What the visitor looks for in the list; over when the page is.
const filter = { group: '', most: 0, linked: false };
const countLimits = [1, 2, 4, 8, 16, 64];

function passes({ catalogue }: Context, { gpu, count, group }: HardwareSuggestion): boolean {
  const card = catalogue.gpus.find((entry) => entry.id === gpu);
  return (
    (filter.group === '' || group === filter.group) &&
    (filter.most === 0 || count <= filter.most) &&
    (!filter.linked || (card?.link_gb_per_s ?? 0) > 0)
  );
}

function filters(context: Context): TemplateResult {
  const { words, actions } = context;
  const change = (patch: Partial<typeof filter>) => {
    Object.assign(filter, patch);
    actions.redraw();
  };
  const option = (value: string, text: string, chosen: boolean) =>
    html`<option value=${value} .selected=${chosen}>${text}</option>`;
  const onSelect = (use: (value: string) => void) => (event: Event) => use((event.target as HTMLSelectElement).value);
  return html`<div class="filters" role="group" aria-label=${words.t('filter.title')}>
    <div class="field">
      <label for="filter-group">${words.t('filter.group')}</label>
      <select id="filter-group" @change=${onSelect((group) => change({ group }))}>
        ${option('', words.t('filter.all'), filter.group === '')}
        ${groups.map((group) => option(group, words.t(`group.${group}`), filter.group === group))}
      </select>
    </div>
    <div class="field">
      <label for="filter-most">${words.t('filter.most')}</label>
      <select id="filter-most" @change=${onSelect((most) => change({ most: Number(most) }))}>
        ${option('0', words.t('filter.any'), filter.most === 0)}
        ${countLimits.map((most) => option(String(most), words.t('number', { value: most }), filter.most === most))}
      </select>
    </div>
    ${checkbox('filter-linked', words.t('filter.linked'), filter.linked, (linked) => change({ linked }))}
  </div>`;
}
const unfolded = new Set<SystemGroup>();

function offers(context: Context, { gpu, count, systems }: HardwareSuggestion): TemplateResult | typeof nothing {
  const { words } = context;
  if (systems.length === 0) return nothing;
  return disclosure(
    context,
    { key: `systems ${gpu} ${count}`, kind: 'systems', summary: words.t('system.count', { count: systems.length }) },
    () =>
      html`<ul>
        ${systems.map((system) => html`<li>${offeredSystem(context, system)}</li>`)}
      </ul>`,
  );
}

function statusTag({ words }: Context, { status }: HardwareSuggestion): TemplateResult | typeof nothing {
  return status === 'shipping' ? nothing : html`<p><span class="tag">${words.t(`status.${status}`)}</span></p>`;
}

function suggested(context: Context, suggestion: HardwareSuggestion): TemplateResult {
  const { words, format } = context;
  const figures = { need: format.bytes(suggestion.device.expected), usable: format.bytes(suggestion.usable_bytes) };
  return offer(
    context,
    suggestion,
    nothing,
    html`<p class="offer-figures">
        <strong>${words.t(`verdict.${suggestion.verdict}`)}</strong>
        ${words.t(suggestion.count > 1 ? 'suggestion.need_each' : 'suggestion.need', figures)}
      </p>
      ${statusTag(context, suggestion)} ${offers(context, suggestion)}`,
  );
}

function offerGroup(context: Context, group: SystemGroup, all: HardwareSuggestion[]): TemplateResult | typeof nothing {
  const { words, actions } = context;
  const own = all.filter((suggestion) => suggestion.group === group);
  if (own.length === 0) return nothing;
  const open = unfolded.has(group);
  const rest = own.length - firstFew;
  const toggle = () => {
    if (!unfolded.delete(group)) unfolded.add(group);
    actions.redraw();
  };
  return html`<div class="offer-group">
    <h3>${words.t(`group.${group}`)}</h3>
    <p class="note">${words.t(`group.${group}.text`)}</p>
    <ul class="offers">
      ${(open ? own : own.slice(0, firstFew)).map((suggestion) => suggested(context, suggestion))}
    </ul>
    ${
      rest > 0
        ? html`<button type="button" class="link" aria-expanded=${open ? 'true' : 'false'} @click=${toggle}>
            ${open ? words.t('suggestion.fewer') : words.t('suggestion.more', { count: rest })}<span
              class="visually-hidden"
            >
              ${words.t(`group.${group}`)}</span
            >
          </button>`
        : nothing
    }
  </div>`;
}

/** "Why is my GPU not listed?" */
function leftOut(context: Context): TemplateResult | typeof nothing {
  const { words, report } = context;
  const entries = report.suggestions?.not_fitting ?? [];
  if (entries.length === 0) return nothing;
  const reasons = [...new Set(entries.map((entry) => entry.reason))];
  const names = (reason: string) =>
    entries.filter((entry) => entry.reason === reason).map((entry) => gpuName(context, entry.gpu));
  return disclosure(
    context,
    { key: 'left-out', kind: 'left-out', summary: words.t('hardware.left_out') },
    () =>
      html`<dl>
        ${reasons.map(
          (reason) =>
            html`<div>
              <dt>${words.t(`reason.${reason}`)}</dt>
              <dd>${names(reason).join(', ')}</dd>
            </div>`,
        )}
      </dl>`,
  );
}

export function hardwareSuggestions(context: Context): TemplateResult {
  const { words, report } = context;
  const all = report.suggestions?.systems ?? [];
  const systems = all.filter((suggestion) => passes(context, suggestion));
  return html`<section class="panel" id="hardware" aria-labelledby="hardware-title" tabindex="-1">
    <h2 id="hardware-title">${words.t('hardware.title')}</h2>
    <p>${words.t(all.length > 0 ? 'hardware.text' : 'hardware.none')}</p>
    ${piece(() => ladder(context))} ${all.length > 0 ? filters(context) : nothing}
    <p role="status" class="note">${words.t('filter.found', { count: systems.length })}</p>
    <div class="offer-groups">${groups.map((group) => piece(() => offerGroup(context, group, systems)))}</div>
    ${leftOut(context)}
  </section>`;
}
