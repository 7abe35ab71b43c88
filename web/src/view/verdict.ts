// Does it fit: in words, with what is left over.
import { html, nothing, type TemplateResult } from 'lit-html';

import { keyOf } from '../form';
import type { Report, Verdict } from '../wire';
import type { Context } from './context';
import { gpuName, modelName, noticeText, parameterCount, valueName } from './words';

const marks: Record<Verdict | 'needed', string> = {
  comfortable: 'M6 12.5l4 4 8-9',
  tight: 'M6 12.5l4 4 8-9',
  at_risk: 'M12 6v7.5M12 17.2v.3',
  does_not_fit: 'M7 7l10 10M17 7L7 17',
  unknown: 'M9 9.2a3 3 0 1 1 4.4 2.7c-.9.5-1.4 1-1.4 2M12 17.2v.3',
  needed: 'M6 8.5h12v7H6zM9 15.5v2.5M12 15.5v2.5M15 15.5v2.5',
};

export const verdictIcon = (verdict: Verdict | 'needed') =>
  html`<svg class="verdict-icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false">
    <circle cx="12" cy="12" r="11" />
    <path d=${marks[verdict]} />
  </svg>`;

export const verdictOf = (report: Report): Verdict | 'needed' => report.fit?.verdict ?? 'needed';

/** The verdict in a few words: "Fits comfortably". */
export const verdictTitle = ({ words, format }: Context, report: Report): string =>
  words.t(`verdict.${verdictOf(report)}`, { need: format.bytes(report.memory!.per_gpu.device.expected) });

export function modelLabel(context: Context, report: Report = context.report): string {
  const { words } = context;
  const model = report.model!;
  if (model.id) return modelName(context, model.id);
  return words.t('model.unnamed', { size: parameterCount(context, model.parameters) });
}

function methodInSentence(context: Context): string {
  const method = context.report.request?.training?.method;
  const key = `sentence.method.${method}`;
  return context.words.has(key) ? context.words.t(key) : valueName(context, '/training/method', method);
}

/** One sentence that a manager understands: what, whether it fits, on what, with how much to spare. */
export function verdictText(context: Context): string {
  const { words, format, report } = context;
  const { hardware } = report.request!;
  const count = hardware?.count ?? 1;
  const { fit } = report;
  const need = format.bytes(report.memory!.per_gpu.device.expected);
  return words.t(`verdict.says.${verdictOf(report)}`, {
    training: words.t('verdict.training', { model: modelLabel(context), method: methodInSentence(context) }),
    place:
      count > 1
        ? words.t('suggestion.name', { count, gpu: gpuName(context, hardware!.gpu) })
        : words.t('verdict.single', { gpu: gpuName(context, hardware?.gpu ?? '') }),
    need: count > 1 ? words.t('verdict.each', { need }) : need,
    usable: format.bytes(fit?.usable_bytes ?? 0),
    headroom: format.bytes(Math.abs(fit?.headroom_bytes ?? 0)),
  });
}

/** How sure: the interval, and the rule behind the verdict. */
function sureness(context: Context): string {
  const { words, format, report } = context;
  const reasons = report.fit?.reasons ?? [];
  const interval = words.t('verdict.interval', { interval: format.interval(report.memory!.per_gpu.device) });
  return [interval, ...reasons.slice(-1).map((reason) => words.t(`fit.${reason.code}`)), modelLine(context)].join(' ');
}

/** What was planned, in the fewest words. */
function settings(context: Context): string[] {
  const { words, report } = context;
  const training = report.request?.training;
  if (!training) return [];
  const named = (pointer: string, value: unknown) =>
    value === undefined || value === null ? [] : [valueName(context, pointer, value)];
  return [
    ...named('/training/base_weights', training.base_weights),
    ...named('/training/optimizer/name', training.optimizer?.name),
    words.t('settings.sequence', { count: training.sequence_length ?? 0 }),
    words.t('settings.micro_batch', { count: training.micro_batch ?? 0 }),
    ...(training.recompute ? [words.t(`settings.${keyOf('/training/recompute')}.${training.recompute}`)] : []),
  ];
}

function modelLine(context: Context): string {
  const { words, format, report } = context;
  const { parameters, trainable } = report.model!;
  const total = parameterCount(context, parameters);
  if (trainable >= parameters) return words.t('verdict.all_trainable', { total });
  return words.t('verdict.trainable', {
    total,
    trainable: parameterCount(context, trainable),
    share: format.percent(trainable / parameters),
  });
}

function notices(context: Context) {
  const list = context.report.warnings ?? [];
  if (list.length === 0) return nothing;
  return html`<ul class="warnings">
    ${list.map((notice) => html`<li>${noticeText(context, 'warning', notice)}</li>`)}
  </ul>`;
}

const places: readonly [section: string, key: string][] = [
  ['changes', 'change.title'],
  ['hardware', 'hardware.title'],
  ['curves', 'curve.title'],
  ['accuracy', 'accuracy.title'],
  ['diagnose', 'diagnose.title'],
];

/** Changes may turn out to be none; until then their place is kept. */
const onward = ({ report, vendor }: Context) =>
  places.filter(
    ([section]) =>
      !vendor.hidden.includes(section) && (section !== 'changes' || report.suggestions?.changes.length !== 0),
  );

export function verdictCard(context: Context): TemplateResult {
  const verdict = verdictOf(context.report);
  return html`<div class="verdict verdict-${verdict}">
    <h2 id="answer-title">${verdictIcon(verdict)}<span>${verdictTitle(context, context.report)}</span></h2>
    <p class="verdict-text">${verdictText(context)}</p>
    <p class="verdict-model">${sureness(context)}</p>
    <ul class="chips" aria-label=${context.words.t('settings')}>
      ${settings(context).map((text) => html`<li>${text}</li>`)}
    </ul>
    ${notices(context)}
    <p class="onward">
      ${onward(context).map(([section, key]) => html`<a href="#${section}">${context.words.t(key)}</a>`)}
    </p>
  </div>`;
}

/** One line for small screens, always in view. */
export function verdictBar(context: Context): TemplateResult {
  const { words, format, report } = context;
  const { fit } = report;
  const { device } = report.memory!.per_gpu;
  const text =
    fit && fit.usable_bytes > 0
      ? words.t('bar.of', { need: format.bytes(device.expected), usable: format.bytes(fit.usable_bytes) })
      : words.t('bar.need', { need: format.bytes(device.expected) });
  return html`<a
    class="verdict-bar verdict-${verdictOf(report)} ${context.problems.length > 0 ? 'stale' : ''}"
    href="#answer"
  >
    ${verdictIcon(verdictOf(report))}<strong>${fit ? verdictTitle(context, report) : words.t('bar.title')}</strong
    ><span class="verdict-bar-number">${text}</span>
  </a>`;
}
