// What comes after training (merging, files, serving), and how much larger a model may become on this system.
import { html, nothing, type TemplateResult } from 'lit-html';

import type { AfterTraining, Growth, GrowthModel } from '../wire';
import type { Context } from './context';
import { field, textControl } from './field';
import { gpuName, modelName, valueName } from './words';

type Row = [name: string, bytes: number | null];

function rows({ words, format }: Context, list: Row[]): TemplateResult[] {
  return list
    .filter((row): row is [string, number] => row[1] !== null)
    .map(
      ([name, bytes]) =>
        html`<div>
          <dt>${words.t(name)}</dt>
          <dd>${format.bytes(bytes)}</dd>
        </div>`,
    );
}

function files(context: Context, { merge, merged_bytes: merged, checkpoints }: AfterTraining): TemplateResult {
  return html`<dl class="figures">
    ${rows(context, [
      ['after.merge_host', merge?.host_bytes ?? null],
      ['after.merge_card', merge?.card_bytes ?? null],
      ['after.merged', merge ? merged : null],
      ['after.adapter_file', checkpoints.adapter_bytes],
      ['after.weights_file', checkpoints.weights_bytes],
      ['after.state_file', checkpoints.training_state_bytes],
    ])}
  </dl>`;
}

function serving(context: Context, { serving: s }: AfterTraining): TemplateResult {
  const { words, format, state, actions } = context;
  const shape = (name: string) => ({ pointer: `/serving/${name}`, label: words.t(`field.serving.${name}`) });
  const length = shape('context');
  const users = shape('users');
  return html`<h3>${words.t('after.serving')}</h3>
    <p>
      ${words.t('after.cache', { token: format.little(s.cache_bytes_per_token), all: format.bytes(s.cache_bytes) })}
    </p>
    <div class="grid">
      ${field(
        context,
        length,
        textControl(
          context,
          length,
          state.serveContext,
          (serveContext) => actions.change({ serveContext }),
          String(s.context),
        ),
      )}
      ${field(
        context,
        users,
        textControl(context, users, state.serveUsers, (serveUsers) => actions.change({ serveUsers })),
      )}
    </div>
    <dl class="figures">
      ${s.rows.map(
        (row) =>
          html`<div>
            <dt>${words.t('after.serve_in', { format: valueName(context, '/training/base_weights', row.weights) })}</dt>
            <dd>${format.bytes(row.total_bytes)}</dd>
          </div>`,
      )}
    </dl>`;
}

export function afterTraining(context: Context): TemplateResult | typeof nothing {
  const { words, report } = context;
  const after = report.after_training;
  if (!after) return nothing;
  return html`<section class="panel" id="after" aria-labelledby="after-title" tabindex="-1">
    <h2 id="after-title">${words.t('after.title')}</h2>
    <p>${words.t(after.merge ? 'after.text_adapters' : 'after.text')}</p>
    ${files(context, after)} ${serving(context, after)}
  </section>`;
}

const onGpus = (context: Context, { gpus }: GrowthModel): string =>
  context.words.t('suggestion.name', {
    count: gpus,
    gpu: gpuName(context, context.report.request?.hardware?.gpu ?? ''),
  });

function growthRow(context: Context, { method, largest, next }: Growth): TemplateResult {
  const { words, format } = context;
  const name = valueName(context, '/training/method', method);
  return html`<div>
    <dt>${name}</dt>
    <dd>
      ${
        largest
          ? words.t('growth.largest', {
              model: modelName(context, largest.model),
              need: format.bytes(largest.device.expected),
            })
          : words.t('growth.none')
      }
      ${
        next
          ? html`<span class="note"
              >${words.t('growth.next', { model: modelName(context, next.model), place: onGpus(context, next) })}</span
            >`
          : nothing
      }
    </dd>
  </div>`;
}

export function growth(context: Context): TemplateResult | typeof nothing {
  const { words, report } = context;
  if (!report.growth?.length) return nothing;
  return html`<section class="panel" id="growth" aria-labelledby="growth-title" tabindex="-1">
    <h2 id="growth-title">${words.t('growth.title')}</h2>
    <p>${words.t('growth.text')}</p>
    <dl class="figures">${report.growth.map((row) => growthRow(context, row))}</dl>
  </section>`;
}
