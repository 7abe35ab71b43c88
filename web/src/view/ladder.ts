// Three machines for the run, from workstation to rack, and what each step up buys.
import { html, nothing, type TemplateResult } from 'lit-html';

import type { LadderStep } from '../wire';
import type { Context } from './context';
import { offer, offeredSystem } from './offer';

function speed({ words, format }: Context, step: LadderStep): TemplateResult | typeof nothing {
  if (step.tokens_per_second === null) return nothing;
  const rate = words.t('ladder.rate', { rate: format.significant(step.tokens_per_second) });
  const bought =
    step.role !== 'smallest' && step.times_faster !== null
      ? words.t('ladder.times', { times: format.times(step.times_faster) })
      : '';
  return html`<p>${rate}${bought ? html` <strong>${bought}</strong>` : nothing}</p>`;
}

function rung(context: Context, step: LadderStep): TemplateResult {
  const { words, format } = context;
  const [machine] = step.systems;
  return offer(
    context,
    step,
    html`<p class="note">${words.t(`ladder.${step.role}`)}</p>`,
    html`${machine ? html`<p class="note">${offeredSystem(context, machine)}</p>` : nothing} ${speed(context, step)}
      <p class="offer-figures">${words.t('ladder.room', { room: format.bytes(step.headroom_bytes) })}</p>`,
  );
}

export function ladder(context: Context): TemplateResult | typeof nothing {
  const { words, report } = context;
  const steps = report.suggestions?.ladder ?? [];
  if (steps.length === 0) return nothing;
  return html`<div class="offer-group" id="ladder">
    <h3>${words.t('ladder.title')}</h3>
    <ul class="offers">
      ${steps.map((step) => rung(context, step))}
    </ul>
  </div>`;
}
