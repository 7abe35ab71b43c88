// Allocated, reserved, device: the three numbers that people look at and confuse, always in this order.
import { html, type TemplateResult } from 'lit-html';

import type { Context } from './context';

const names = ['allocated', 'reserved', 'device'] as const;

export function threeNumbers(context: Context): TemplateResult {
  const { words, format, report } = context;
  const other = format.unit === 'GB' ? 'GiB' : 'GB';
  return html`<dl class="numbers">
    ${names.map((name) => {
      const estimate = report.memory!.per_gpu[name];
      return html`<div class="number number-${name}">
        <dt>${words.t(`number.${name}`)}</dt>
        <dd>
          <span class="number-value">${format.bytes(estimate.expected)}</span>
          <span class="number-other">= ${format.bytes(estimate.expected, other)}</span>
          <span class="number-interval">${words.t('number.interval', { interval: format.interval(estimate) })}</span>
          <span class="number-text">${words.t(`number.${name}.text`)}</span>
          <code>${words.t(`number.${name}.where`)}</code>
        </dd>
      </div>`;
    })}
  </dl>`;
}
