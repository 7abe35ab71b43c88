// One field: label, control, hint, and the problem that the planner found with it. Values are mirrored to attributes,
// so that a page saved after use shows what was filled in.
import { html, nothing, type TemplateResult } from 'lit-html';
import { live } from 'lit-html/directives/live.js';

import type { Context } from './context';
import { noticeText } from './words';

export const idOf = (pointer: string): string => `field${pointer.replaceAll('/', '-')}`;

/** The problems of a field: those at its pointer or inside it. */
export const problemsAt = (context: Context, pointer: string) =>
  context.problems.filter((problem) => problem.pointer === pointer || problem.pointer.startsWith(`${pointer}/`));

export interface FieldShape {
  pointer: string;
  label: string;
  hint?: string | undefined;
}

export function describedBy(context: Context, { pointer, hint }: FieldShape): string | typeof nothing {
  const ids = [];
  if (problemsAt(context, pointer).length > 0) ids.push(`${idOf(pointer)}-problem`);
  if (hint) ids.push(`${idOf(pointer)}-hint`);
  return ids.join(' ') || nothing;
}

export function problemLine(context: Context, pointer: string): TemplateResult | typeof nothing {
  const problems = problemsAt(context, pointer);
  if (problems.length === 0) return nothing;
  return html`<p class="field-problem" id="${idOf(pointer)}-problem">
    ${problems.map((problem) => html`<span>${noticeText(context, 'problem', problem)}</span>`)}
  </p>`;
}

export const hintLine = ({ pointer, hint }: FieldShape) =>
  hint ? html`<p class="field-hint" id="${idOf(pointer)}-hint">${hint}</p>` : nothing;

export function field(context: Context, shape: FieldShape, control: TemplateResult): TemplateResult {
  const wrong = problemsAt(context, shape.pointer).length > 0;
  return html`<div class="field ${wrong ? 'wrong' : ''}">
    <label for=${idOf(shape.pointer)}>${shape.label}</label>
    ${control}${problemLine(context, shape.pointer)}${hintLine(shape)}
  </div>`;
}

export function textControl(
  context: Context,
  shape: FieldShape,
  value: string,
  onInput: (text: string) => void,
  placeholder = '',
): TemplateResult {
  return html`<input
    type="text"
    inputmode="decimal"
    autocomplete="off"
    spellcheck="false"
    id=${idOf(shape.pointer)}
    .value=${live(value)}
    value=${value}
    placeholder=${placeholder || nothing}
    aria-invalid=${problemsAt(context, shape.pointer).length > 0 ? 'true' : 'false'}
    aria-describedby=${describedBy(context, shape)}
    @input=${(event: Event) => onInput((event.target as HTMLInputElement).value)}
  />`;
}

export interface Entry {
  value: string;
  text: string;
  group?: string;
}

const entryOption = (entry: Entry, chosen: string) =>
  html`<option value=${entry.value} .selected=${entry.value === chosen} ?selected=${entry.value === chosen}>
    ${entry.text}
  </option>`;

function entryGroups(entries: Entry[], chosen: string) {
  const groups = [...new Set(entries.map((entry) => entry.group))];
  return groups.map((group) => {
    const inside = entries.filter((entry) => entry.group === group).map((entry) => entryOption(entry, chosen));
    return group === undefined ? inside : html`<optgroup label=${group}>${inside}</optgroup>`;
  });
}

export function selectControl(
  context: Context,
  shape: FieldShape,
  entries: Entry[],
  chosen: string,
  onChange: (value: string) => void,
) {
  return html`<select
    id=${idOf(shape.pointer)}
    aria-invalid=${problemsAt(context, shape.pointer).length > 0 ? 'true' : 'false'}
    aria-describedby=${describedBy(context, shape)}
    @change=${(event: Event) => onChange((event.target as HTMLSelectElement).value)}
  >
    ${entryGroups(entries, chosen)}
  </select>`;
}

export interface RadioEntry {
  value: string;
  title: string;
  text?: string | undefined;
}

/** A row of radio buttons, drawn as cards when they carry a sentence and as one segmented control when they do not. */
export function radios(
  name: string,
  entries: RadioEntry[],
  chosen: string,
  onChange: (value: string) => void,
): TemplateResult {
  const cards = entries.some((entry) => entry.text);
  return html`<div class=${cards ? 'cards' : 'segments'}>
    ${entries.map(
      (entry) =>
        html`<label>
          <input
            type="radio"
            name=${name}
            value=${entry.value}
            .checked=${live(entry.value === chosen)}
            ?checked=${entry.value === chosen}
            @change=${() => onChange(entry.value)}
          />
          <span class="radio-body"
            ><span class="radio-title">${entry.title}</span>
            ${entry.text ? html`<span class="radio-text">${entry.text}</span>` : nothing}</span
          >
        </label>`,
    )}
  </div>`;
}

export function checkbox(
  id: string,
  label: string,
  checked: boolean,
  onChange: (checked: boolean) => void,
): TemplateResult {
  return html`<label class="checkbox" for=${id}>
    <input
      type="checkbox"
      id=${id}
      .checked=${live(checked)}
      ?checked=${checked}
      @change=${(event: Event) => onChange((event.target as HTMLInputElement).checked)}
    />
    <span>${label}</span>
  </label>`;
}
