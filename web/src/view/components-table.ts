// Every component of the peak in a table; a row opens to its rule in words, its formula with numbers, and its source.
import { html, nothing, type TemplateResult } from 'lit-html';

import type { Component } from '../wire';
import type { Context } from './context';
import { colourClass, stacked } from './palette';

const opened = new Set<string>();

function toggle(context: Context, id: string): void {
  if (!opened.delete(id)) opened.add(id);
  context.actions.redraw();
}

const signs: Record<string, string> = { '*': ' × ', '/': ' ÷ ', '+': ' + ', '-': ' − ', ',': ', ' };

/** A notation cut into names, numbers and signs; ceil(x) becomes ⌈x⌉. */
function tokensOf(notation: string): string[] {
  const rounded = notation.replace(/ceil\(([^()]*)\)/g, '⌈$1⌉');
  return rounded.match(/[A-Za-z_]\w*|\d+(?:\.\d+)?|[^\s\w]/g) ?? [];
}

/** `P_linear` is written with its second part below the line. */
function symbolShape(symbol: string): TemplateResult {
  const [name, ...below] = symbol.split('_');
  return html`<var>${name}${below.length > 0 ? html`<sub>${below.join(' ')}</sub>` : nothing}</var>`;
}

function withSymbols({ format }: Context, notation: string) {
  return tokensOf(notation).map((token) => {
    if (/^[A-Za-z_]/.test(token)) return symbolShape(token);
    return /^\d/.test(token) ? format.number(Number(token)) : (signs[token] ?? token);
  });
}

function withNumbers({ format }: Context, { notation, terms }: Component): string {
  const value = new Map(terms.map((term) => [term.symbol, term.value]));
  return tokensOf(notation)
    .map((token) => {
      const number = value.get(token) ?? (/^\d/.test(token) ? Number(token) : null);
      return number === null ? (signs[token] ?? token) : format.number(number);
    })
    .join('');
}

/** `P_2` is worded as `P`; a symbol without words shows its name alone. */
function symbolMeaning({ words }: Context, symbol: string): string {
  const key = [symbol, symbol.replace(/_\d+$/, ''), symbol.replace(/_.*$/, '')].find((name) =>
    words.has(`symbol.${name}`),
  );
  return key ? words.t(`symbol.${key}`) : '';
}

function sourceLink({ words, catalogue }: Context, id: string) {
  const source = catalogue.sources.find((entry) => entry.id === id);
  if (!source) return id || words.t('unknown');
  return /^https?:/.test(source.url)
    ? html`<a href=${source.url} rel="noopener noreferrer" target="_blank">${source.title}</a>`
    : source.title;
}

/** The formula with symbols, with numbers, and what the symbols mean; a constant is just its number. */
function calculation(context: Context, component: Component): TemplateResult {
  const { words, format } = context;
  const bytes = html`<strong>${format.integer(component.bytes)}</strong> ${words.t('bytes')}`;
  if (/^\w*$/.test(component.notation)) return html`<p class="formula">${bytes}</p>`;
  return html`<p class="formula">${withSymbols(context, component.notation)}</p>
    <p class="formula">= ${withNumbers(context, component)} = ${bytes}</p>
    <dl class="symbols">
      ${component.terms.map(
        ({ symbol, value }) =>
          html`<div>
            <dt>${symbolShape(symbol)}</dt>
            <dd><span class="symbol-value">${format.number(value)}</span> ${symbolMeaning(context, symbol)}</dd>
          </div>`,
      )}${
        component.notation.includes('ceil(')
          ? html`<div>
              <dt>⌈ ⌉</dt>
              <dd>${words.t('symbol.ceil')}</dd>
            </div>`
          : nothing
      }
    </dl>`;
}

function explanation(context: Context, component: Component): TemplateResult {
  const { words } = context;
  const key = `formula.${component.formula}`;
  return html`<div class="explanation">
    <p>${words.t(`component.${component.id}.text`)}</p>
    ${words.has(key) ? html`<p>${words.t(key)}</p>` : nothing} ${calculation(context, component)}
    <p class="provenance">
      <span class="tag">${words.t(`certainty.${component.certainty}`)}</span>
      ${words.t(`certainty.${component.certainty}.text`)} ${words.t('source')}: ${sourceLink(context, component.source)}
    </p>
  </div>`;
}

function rows(context: Context, component: Component, whole: number): TemplateResult {
  const { words, format } = context;
  const open = opened.has(component.id);
  const detail = `component-${component.id}`;
  return html`<tr class=${open ? 'open' : ''}>
      <th scope="row">
        <button
          type="button"
          class="expander"
          aria-expanded=${open ? 'true' : 'false'}
          aria-controls=${detail}
          @click=${() => toggle(context, component.id)}
        >
          <span class="swatch ${colourClass(component.id)}"></span><span>${words.t(`component.${component.id}`)}</span>
        </button>
      </th>
      <td class="figure">${format.column(component.bytes)}</td>
      <td class="figure">${format.percent(component.bytes / whole)}</td>
      <td class="wide-only">${words.t(`certainty.${component.certainty}`)}</td>
    </tr>
    <tr id=${detail} class="detail-row" ?hidden=${!open}>
      <td colspan="4">${open ? explanation(context, component) : nothing}</td>
    </tr>`;
}

function group(
  context: Context,
  name: string,
  components: Component[],
  whole: number,
): TemplateResult | typeof nothing {
  const { words } = context;
  if (components.length === 0) return nothing;
  return html`<tbody>
    <tr class="group-row">
      <th scope="rowgroup" colspan="4">${words.t(`group.${name}`)} <span>${words.t(`group.${name}.text`)}</span></th>
    </tr>
    ${components.map((component) => rows(context, component, whole))}
  </tbody>`;
}

function totalRow(context: Context, name: 'allocated' | 'device', whole: number): TemplateResult {
  const { words, format, report } = context;
  const { expected } = report.memory!.per_gpu[name];
  return html`<tbody class="total">
    <tr>
      <th scope="row">${words.t(`total.${name}`)}</th>
      <td class="figure">${format.column(expected)}</td>
      <td class="figure">${format.percent(expected / whole)}</td>
      <td class="wide-only"></td>
    </tr>
  </tbody>`;
}

export function componentsTable(context: Context): TemplateResult {
  const { words, format, report } = context;
  const { components, beyond_allocated: beyond, per_gpu: perGpu } = report.memory!;
  const shown = stacked(components).filter((component) => component.bytes > 0);
  const whole = perGpu.device.expected;
  return html`<table class="components">
    <caption class="visually-hidden">
      ${words.t('table.caption')}
    </caption>
    <thead>
      <tr>
        <th scope="col">${words.t('table.component')}</th>
        <th scope="col" class="figure">${format.unit}</th>
        <th scope="col" class="figure">${words.t('table.share')}</th>
        <th scope="col" class="wide-only">${words.t('table.certainty')}</th>
      </tr>
    </thead>
    ${group(
      context,
      'static',
      shown.filter((component) => component.group === 'static'),
      whole,
    )}
    ${group(
      context,
      'temporary',
      shown.filter((component) => component.group === 'temporary'),
      whole,
    )}
    ${totalRow(context, 'allocated', whole)}
    ${group(
      context,
      'beyond',
      beyond.filter((component) => component.bytes > 0),
      whole,
    )}
    ${totalRow(context, 'device', whole)}
  </table>`;
}
