// What to change, and what each change does: memory and speed after it.
import { html, nothing, type TemplateResult } from 'lit-html';

import { keyOf } from '../form';
import type { ChangeSuggestion } from '../wire';
import type { Context } from './context';
import { verdictIcon } from './verdict';
import { valueName } from './words';

function fromTo(context: Context, { pointer, from, to }: ChangeSuggestion): string {
  const name = (value: string | number | boolean) => valueName(context, pointer, value);
  return context.words.t('change.from_to', { from: name(from), to: name(to) });
}

function speedAfter({ words, format }: Context, change: ChangeSuggestion): string {
  if (change.tokens_per_second === null || change.times_as_fast === null) return '';
  const [rate, times] = [format.significant(change.tokens_per_second), format.times(change.times_as_fast)];
  return times === format.times(1) ? words.t('change.same_speed', { rate }) : words.t('change.speed', { rate, times });
}

export function changeItem(context: Context, change: ChangeSuggestion): TemplateResult {
  const { words, format, actions } = context;
  const saved = format.bytes(change.saved_bytes);
  const field = words.t(`field.${keyOf(change.pointer)}`);
  const text = `${field}, ${fromTo(context, change)}`;
  const told = `change.${change.id}`;
  const judged = change.verdict !== 'unknown'; // without a card there is nothing to fit on
  return html`<li class="change verdict-${change.verdict}">
    <div class="offer-head">
      ${judged ? verdictIcon(change.verdict) : nothing}
      <h3>${field}<span>${fromTo(context, change)}</span></h3>
    </div>
    ${words.has(told) ? html`<p>${words.t(told)}</p>` : nothing}
    <p class="offer-figures">
      ${words.t('change.saves', { saved, need: format.bytes(change.device.expected) })} ${speedAfter(context, change)}
      ${judged ? html`<strong>${words.t(`verdict.${change.verdict}`)}</strong>` : nothing}
    </p>
    <button
      type="button"
      class="quiet"
      aria-label=${words.t('change.apply_this', { text })}
      @click=${() => actions.apply(change.request)}
    >
      ${words.t('change.apply')}
    </button>
  </li>`;
}

export function changeSuggestions(context: Context): TemplateResult | typeof nothing {
  const changes = (context.report.suggestions?.changes ?? []).filter((change) =>
    context.format.shows(change.saved_bytes),
  );
  if (changes.length === 0) return nothing;
  return html`<section class="panel" id="changes" aria-labelledby="changes-title" tabindex="-1">
    <h2 id="changes-title">${context.words.t('change.title')}</h2>
    <p>${context.words.t('change.intro')}</p>
    <ul class="changes">
      ${changes.map((change) => changeItem(context, change))}
    </ul>
  </section>`;
}
