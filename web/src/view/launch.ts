// How to start the planned run: the files and the command of each framework that can express it.
import { html, nothing, type TemplateResult } from 'lit-html';

import { copyText } from '../share';
import type { LaunchText } from '../wire';
import type { Context } from './context';
import { fieldName } from './words';

let copied: LaunchText | null = null;

function file(context: Context, text: LaunchText): TemplateResult {
  const { words, actions } = context;
  const copy = async () => {
    copied = (await copyText(text.text)) ? text : null;
    actions.redraw();
  };
  return html`<div class="launch-file">
    <div class="launch-head">
      <h3>${text.filename}</h3>
      <button
        type="button"
        class="quiet"
        aria-label=${words.t('launch.copy_this', { name: text.filename })}
        @click=${() => void copy()}
      >
        ${words.t(copied === text ? 'launch.copied' : 'launch.copy')}
      </button>
    </div>
    <pre tabindex="0" role="region" aria-label=${text.filename}><code>${text.text}</code></pre>
  </div>`;
}

function framework(context: Context, id: string, open: boolean): TemplateResult {
  const texts = context.report.launch!.filter((text) => text.id === id);
  return html`<details class="launch-framework" ?open=${open}>
    <summary>${context.words.t(`launch.framework.${id}`)}</summary>
    ${texts.map((text) => file(context, text))}
  </details>`;
}

/** "Why is my framework not listed?" Those that run other code than the chosen one need no reason. */
function leftOut(context: Context): TemplateResult | typeof nothing {
  const { words, report } = context;
  const entries = (report.launch_left_out ?? []).filter(({ reason }) => reason !== 'other_framework');
  if (entries.length === 0) return nothing;
  return html`<ul class="note">
    ${entries.map(
      ({ id, reason, pointer }) =>
        html`<li>
          ${words.t(`launch.reason.${reason}`, {
            framework: words.t(`launch.framework.${id}`),
            field: fieldName(context, pointer),
          })}
        </li>`,
    )}
  </ul>`;
}

export function launch(context: Context): TemplateResult | typeof nothing {
  const { words, report } = context;
  const ids = [...new Set((report.launch ?? []).map(({ id }) => id))];
  return html`<section class="panel" id="launch" aria-labelledby="launch-title" tabindex="-1">
    <h2 id="launch-title">${words.t('launch.title')}</h2>
    <p>${words.t(ids.length > 0 ? 'launch.text' : 'launch.none')}</p>
    ${ids.map((id, index) => framework(context, id, index === 0))} ${leftOut(context)}
  </section>`;
}
