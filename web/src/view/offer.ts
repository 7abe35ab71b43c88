// A machine to choose: what the ladder and the list of hardware share.
import { html, type TemplateResult } from 'lit-html';

import type { SystemOffer, Verdict } from '../wire';
import type { Context } from './context';
import { verdictIcon } from './verdict';
import { gpuName, systemName } from './words';

export function offeredSystem(context: Context, { id, systems_needed: needed }: SystemOffer): string {
  const name = systemName(context, id);
  return needed > 1 ? context.words.t('system.several', { count: needed, name }) : name;
}

interface Machine {
  gpu: string;
  count: number;
  verdict: Verdict;
}

/** `role`: what it is among others; `told`: what there is to say of it. */
export function offer(context: Context, machine: Machine, role: unknown, told: unknown): TemplateResult {
  const { words, actions } = context;
  const { gpu, count, verdict } = machine;
  const name = words.t('suggestion.name', { count, gpu: gpuName(context, gpu) });
  return html`<li class="offer verdict-${verdict}">
    ${role}
    <div class="offer-head">
      ${verdictIcon(verdict)}
      <h4>${name}</h4>
    </div>
    ${told}
    <button
      type="button"
      class="quiet"
      aria-label=${words.t('suggestion.choose_this', { name })}
      @click=${() => actions.chooseGpu(gpu, count)}
    >
      ${words.t('suggestion.choose')}
    </button>
  </li>`;
}
