// How fast it runs: always an estimate, always with its margin.
import { html, nothing, type TemplateResult } from 'lit-html';

import type { Speed } from '../wire';
import type { Context } from './context';

type Figure = { name: string; value: string; margin: string };

function figures({ words, format }: Context, speed: Speed): Figure[] {
  const rate = (value: number) => format.significant(value);
  const tokens = speed.tokens_per_second;
  const each = speed.tokens_per_second_per_gpu;
  const { step_seconds: step, budget } = speed;
  const rows = [
    {
      name: 'step',
      value: format.seconds(step.expected),
      low: format.seconds(step.low),
      high: format.seconds(step.high),
    },
    { name: 'rate', value: rate(tokens.expected), low: rate(tokens.low), high: rate(tokens.high) },
    { name: 'rate_each', value: rate(each.expected), low: rate(each.low), high: rate(each.high) },
  ];
  if (budget) {
    const { days } = budget;
    rows.push({ name: 'days', value: rate(days.expected), low: rate(days.low), high: rate(days.high) });
  }
  return rows.map(({ name, value, low, high }) => ({ name, value, margin: words.t('speed.margin', { low, high }) }));
}

/** The energy of the cards alone, when their rated power is known. */
function energy({ words, format }: Context, { budget }: Speed) {
  if (!budget || budget.energy_kwh === null) return nothing;
  return html`<p class="note">${words.t('speed.energy', { energy: format.significant(budget.energy_kwh) })}</p>`;
}

function phases({ words, format }: Context, speed: Speed): TemplateResult {
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${words.t('speed.phases')}>
    <table>
      <caption>
        ${words.t('speed.phases')}
      </caption>
      <thead>
        <tr>
          <th scope="col">${words.t('speed.phase')}</th>
          <th scope="col" class="figure">${words.t('speed.time')}</th>
          <th scope="col">${words.t('speed.waits')}</th>
        </tr>
      </thead>
      <tbody>
        ${speed.phases.map(
          ({ id, seconds, bound }) =>
            html`<tr>
              <th scope="row">${words.t(`speed.phase.${id}`)}</th>
              <td class="figure">${format.seconds(seconds)}</td>
              <td>${words.t(`bound.${bound}`)}</td>
            </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

function answer(context: Context, speed: Speed): TemplateResult {
  const { words, format } = context;
  return html`<p>
      ${words.t(`speed.bound.${speed.bound}`)} ${words.t('speed.mfu', { share: format.percent(speed.mfu) })}
    </p>
    <dl class="speed-figures">
      ${figures(context, speed).map(
        ({ name, value, margin }) =>
          html`<div>
            <dt>${words.t(`speed.${name}`)}</dt>
            <dd>${value} <span class="note">${margin}</span></dd>
          </div>`,
      )}
    </dl>
    ${energy(context, speed)} ${phases(context, speed)}`;
}

export function speedSection(context: Context): TemplateResult | typeof nothing {
  const { words, report } = context;
  const { speed } = report;
  if (!speed) return nothing;
  return html`<section class="panel" id="speed" aria-labelledby="speed-title" tabindex="-1">
    <h2 id="speed-title">${words.t('speed.title')}</h2>
    <p class="note">${words.t('speed.estimate')}</p>
    ${'refused' in speed ? html`<p>${words.t(`speed.refused.${speed.refused}`)}</p>` : answer(context, speed)}
  </section>`;
}
