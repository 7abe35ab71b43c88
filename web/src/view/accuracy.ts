// How well does this hold: what measured runs say of the planner, and the runs that resemble this one most.
import { html, nothing, type TemplateResult } from 'lit-html';

import type { AccuracyGroup, MeasuredRun } from '../wire';
import type { Context } from './context';
import { gpuName, modelName, valueName } from './words';

const kind = (context: Context, { framework, method }: { framework?: string; method?: string }) => ({
  framework: valueName(context, '/training/framework', framework),
  method: valueName(context, '/training/method', method),
});

/** What the runs of the visitor's own kind say, or that there are none. */
function groupText(context: Context, group: AccuracyGroup | null): string {
  const { words, format, report } = context;
  if (!group) {
    const training = report.request?.training ?? {};
    const own = `accuracy.none.${training.framework}`;
    return words.t(words.has(own) ? own : 'accuracy.none', kind(context, training));
  }
  return words.t('accuracy.group', {
    count: group.runs,
    ...kind(context, group),
    metric: words.t(`accuracy.metric.${group.metric}`),
    median: format.permille(group.median_permille),
    p90: format.permille(group.p90_permille),
    worst: format.permille(group.worst_permille),
    inside: format.permille(group.inside_permille),
  });
}

function settings(context: Context, { request }: MeasuredRun): string[] {
  const { words } = context;
  const training = request.training ?? {};
  return [
    [valueName(context, '/training/framework', training.framework), training.framework_version ?? ''].join(' ').trim(),
    valueName(context, '/training/precision', training.precision),
    valueName(context, '/training/base_weights', training.base_weights),
    words.t('settings.sequence', { count: training.sequence_length ?? 0 }),
    words.t('settings.micro_batch', { count: training.micro_batch ?? 0 }),
    words.t(`settings.recompute.${training.recompute}`),
    valueName(context, '/training/attention', training.attention),
    words.t(`settings.cross_entropy.${training.cross_entropy}`),
    ...(training.kernels === 'fused' ? [words.t('settings.fused_kernels')] : []),
    ...(training.kbit_upcast ? [words.t('settings.kbit_upcast')] : []),
  ];
}

function runTitle(context: Context, { request }: MeasuredRun): string {
  const { words } = context;
  const model = modelName(context, typeof request.model === 'string' ? request.model : '');
  const method = valueName(context, '/training/method', request.training?.method);
  const { gpu = '', count = 1 } = request.hardware ?? {};
  const place = words.t('suggestion.name', { count, gpu: gpuName(context, gpu) });
  return words.t('accuracy.run', { model, method, place });
}

/** A path may break after each of its parts. */
const breakable = (text: string) => text.split(/(?<=[/_])/).map((part) => html`${part}<wbr />`);

function run(context: Context, measured: MeasuredRun): TemplateResult {
  const { words, format, actions } = context;
  const title = runTitle(context, measured);
  const figures = [
    ['measured', format.bytes(measured.measured_bytes)],
    ['planned', format.bytes(measured.planned_bytes)],
    ['difference', format.signedPermille(measured.difference_permille)],
  ];
  return html`<li class="measured-run">
    <h3>${title}</h3>
    <p class="note">${settings(context, measured).join('\u00a0· ')}</p>
    <dl>
      ${figures.map(
        ([name, value]) =>
          html`<div>
            <dt>${words.t(`accuracy.${name}`)}</dt>
            <dd>${value}</dd>
          </div>`,
      )}
    </dl>
    <p class="note">
      ${words.t('accuracy.measured_by', { metric: words.t(`number.${measured.metric}.where`) })} ${words.t('source')}:
      ${breakable(measured.source)}${measured.date ? ` (${measured.date})` : ''}
    </p>
    <button
      type="button"
      class="quiet"
      aria-label=${words.t('accuracy.apply_this', { name: title })}
      @click=${() => actions.apply(measured.request)}
    >
      ${words.t('accuracy.apply')}
    </button>
  </li>`;
}

export function accuracy(context: Context): TemplateResult | typeof nothing {
  const { words, report } = context;
  if (!report.accuracy) return nothing;
  const { group, nearest } = report.accuracy;
  return html`<section class="panel" id="accuracy" aria-labelledby="accuracy-title" tabindex="-1">
    <h2 id="accuracy-title">${words.t('accuracy.title')}</h2>
    <p>${groupText(context, group)}</p>
    <p class="note">${words.t('accuracy.nearest')}</p>
    <ul class="measured-runs">
      ${nearest.map((measured) => run(context, measured))}
    </ul>
  </section>`;
}
