// Up to three plans beside each other; what differs is marked.
import { html, nothing, type TemplateResult } from 'lit-html';

import type { Report } from '../wire';
import type { Context } from './context';
import { modelLabel, verdictTitle } from './verdict';
import { gpuName, valueName } from './words';

type Line = [key: string, text: (report: Report) => string];

const request = (report: Report) => report.request!;

function placeText(context: Context, report: Report): string {
  const { hardware } = request(report);
  if (!hardware) return context.words.t('compare.no_card');
  return context.words.t('suggestion.name', { count: hardware.count ?? 1, gpu: gpuName(context, hardware.gpu) });
}

function linesOf(context: Context): Line[] {
  const { words, format } = context;
  const value = (pointer: string, of: (report: Report) => unknown): ((report: Report) => string) => {
    return (report) => {
      const found = of(report);
      return found === null || found === undefined ? '–' : valueName(context, pointer, found);
    };
  };
  const bytes = (of: (report: Report) => number | undefined) => (report: Report) => {
    const found = of(report);
    return found === undefined ? '–' : format.bytes(found);
  };
  return [
    ['compare.verdict', (report) => verdictTitle(context, report)],
    [
      'number.device',
      (report) =>
        `${format.bytes(report.memory!.per_gpu.device.expected)} (${format.interval(report.memory!.per_gpu.device)})`,
    ],
    ['compare.headroom', bytes((report) => report.fit?.headroom_bytes)],
    ['number.allocated', bytes((report) => report.memory!.per_gpu.allocated.expected)],
    ['field.model', (report) => modelLabel(context, report)],
    ['field.hardware.gpu', (report) => placeText(context, report)],
    ['field.method', value('/training/method', (report) => request(report).training?.method)],
    ['field.base_weights', value('/training/base_weights', (report) => request(report).training?.base_weights)],
    ['field.precision', value('/training/precision', (report) => request(report).training?.precision)],
    ['field.optimizer.name', value('/training/optimizer/name', (report) => request(report).training?.optimizer?.name)],
    [
      'field.optimizer.states',
      value('/training/optimizer/states', (report) => request(report).training?.optimizer?.states),
    ],
    [
      'field.sequence_length',
      value('/training/sequence_length', (report) => request(report).training?.sequence_length),
    ],
    ['field.micro_batch', value('/training/micro_batch', (report) => request(report).training?.micro_batch)],
    ['field.recompute', value('/training/recompute', (report) => request(report).training?.recompute)],
    ['field.framework', value('/training/framework', (report) => request(report).training?.framework)],
    ['compare.trainable', (report) => words.t('number', { value: report.model!.trainable })],
  ];
}

function lineRow(context: Context, [key, text]: Line, reports: Report[]): TemplateResult {
  const texts = reports.map(text);
  const differs = texts.some((value) => value !== texts[0]);
  return html`<tr class=${differs ? 'differs' : ''}>
    <th scope="row">${context.words.t(key)}</th>
    ${texts.map((value) => html`<td>${value}</td>`)}
  </tr>`;
}

function planHead(context: Context, index: number): TemplateResult {
  const { words, actions } = context;
  return html`<th scope="col">
    ${words.t('compare.plan', { number: index + 1 })}
    <span class="plan-tools">
      <button type="button" class="link" @click=${() => actions.open(index)}>${words.t('compare.open')}</button>
      <button type="button" class="link" @click=${() => actions.drop(index)}>${words.t('compare.drop')}</button>
    </span>
  </th>`;
}

export function compare(context: Context): TemplateResult | typeof nothing {
  const { words, plans, report } = context;
  if (plans.length === 0) return nothing;
  const reports = [report, ...plans.map((plan) => plan.report)];
  return html`<section class="panel" id="compare" aria-labelledby="compare-title" tabindex="-1">
    <h2 id="compare-title">${words.t('compare.title')}</h2>
    <p>${words.t('compare.text')}</p>
    <div class="scroll compare-scroll" tabindex="0" role="region" aria-label=${words.t('compare.table')}>
      <table class="compare">
        <thead>
          <tr>
            <td></td>
            <th scope="col">${words.t('compare.now')}</th>
            ${plans.map((_, index) => planHead(context, index))}
          </tr>
        </thead>
        <tbody>
          ${linesOf(context).map((line) => lineRow(context, line, reports))}
        </tbody>
      </table>
    </div>
  </section>`;
}
