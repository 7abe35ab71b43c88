// The fastest ways to run it on the chosen GPUs: how they share the work, at which micro-batch, with what recomputed.
import { html, nothing, type TemplateResult } from 'lit-html';

import type { LayoutSuggestion, PlanRequest } from '../wire';
import type { Context } from './context';
import { verdictIcon } from './verdict';
import { valueName } from './words';

const kinds = ['dp', 'tp', 'pp', 'vpp', 'cp', 'ep'] as const;

/** "DP 4 · TP 2 · ZeRO 3" */
export function layoutName({ words }: Context, layout: NonNullable<PlanRequest['layout']>): string {
  const parts = kinds
    .filter((kind) => (layout[kind] ?? 1) > 1)
    .map((kind) => words.t('layouts.part', { kind: kind.toUpperCase(), ranks: layout[kind]! }));
  if ((layout.zero ?? 0) > 0) parts.push(words.t('layouts.part', { kind: 'ZeRO', ranks: layout.zero! }));
  return parts.join(' · ') || words.t('layouts.alone');
}

function row(context: Context, { request, device, verdict, tokens_per_second: rate }: LayoutSuggestion) {
  const { words, format, actions } = context;
  const { micro_batch: batch, recompute } = request.training!;
  const name = layoutName(context, request.layout!);
  const recomputed = valueName(context, '/training/recompute', String(recompute));
  const text = words.t('layouts.apply_this', { name, batch: String(batch), recomputed });
  const speed = rate === null ? words.t('layouts.no_rate') : format.significant(rate);
  // A small screen has no room for a column of each.
  const details = [
    words.t('settings.micro_batch', { count: batch ?? 0 }),
    words.t(`settings.recompute.${recompute}`),
  ].join(', ');
  return html`<tr>
    <th scope="row">
      ${name}<span class="narrow-only note"
        >${details}. ${rate === null ? nothing : words.t('ladder.rate', { rate: speed })}</span
      >
    </th>
    <td class="figure wide-only">${batch}</td>
    <td class="wide-only">${recomputed}</td>
    <td class="figure verdict-${verdict}">
      ${verdictIcon(verdict)} ${format.bytes(device.expected)}<span class="visually-hidden">
        ${words.t(`verdict.${verdict}`)}</span
      >
    </td>
    <td class="figure wide-only">${speed}</td>
    <td>
      <button type="button" class="quiet" aria-label=${text} @click=${() => actions.apply(request)}>
        ${words.t('change.apply')}
      </button>
    </td>
  </tr>`;
}

export function layoutSuggestions(context: Context): TemplateResult | typeof nothing {
  const { words, report } = context;
  const { best = [], tried = 0 } = report.layouts ?? {};
  if (best.length === 0) return nothing;
  const fits = best.some(({ verdict }) => verdict !== 'does_not_fit');
  return html`<section class="panel" id="layouts" aria-labelledby="layouts-title" tabindex="-1">
    <h2 id="layouts-title">${words.t('layouts.title')}</h2>
    <p>${words.t(fits ? 'layouts.text' : 'layouts.text.none', { count: tried })}</p>
    <div class="scroll" tabindex="0" role="region" aria-label=${words.t('layouts.table')}>
      <table class="layouts">
        <thead>
          <tr>
            <th scope="col">${words.t('layouts.layout')}</th>
            <th scope="col" class="figure wide-only">${words.t('field.micro_batch')}</th>
            <th scope="col" class="wide-only">${words.t('field.recompute')}</th>
            <th scope="col" class="figure">${words.t('layouts.memory')}</th>
            <th scope="col" class="figure wide-only">${words.t('layouts.rate')}</th>
            <th scope="col"><span class="visually-hidden">${words.t('change.apply')}</span></th>
          </tr>
        </thead>
        <tbody>
          ${best.map((layout) => row(context, layout))}
        </tbody>
      </table>
    </div>
    <p class="note layouts-note">${words.t('layouts.kinds')}</p>
  </section>`;
}
