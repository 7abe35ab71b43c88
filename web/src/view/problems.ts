// What is wrong with the input, beside the last good answer. Each problem is also a sentence at its field.
import { html, nothing, type TemplateResult } from 'lit-html';

import type { Notice } from '../wire';
import type { Context } from './context';
import { idOf } from './field';
import { fieldName, noticeText } from './words';

/** The element to go to: the field itself, or the nearest one around it. */
function targetOf(problem: Notice): string | null {
  for (let pointer = problem.pointer; pointer !== ''; pointer = pointer.slice(0, pointer.lastIndexOf('/'))) {
    const id = pointer === '/model' ? 'model-input' : idOf(pointer);
    if (document.getElementById(id)) return id;
  }
  return null;
}

function goTo(event: Event, problem: Notice): void {
  event.preventDefault(); // the address holds the inputs, not a place on the page
  const id = targetOf(problem);
  if (id) document.getElementById(id)?.focus();
}

function sentence(context: Context, problem: Notice): string {
  const field = fieldName(context, problem.pointer);
  const text = noticeText(context, 'problem', problem);
  return field ? context.words.t('problems.at', { field, text }) : text;
}

const problemLink = (context: Context, problem: Notice): TemplateResult =>
  html`<a href="#steps" @click=${(event: Event) => goTo(event, problem)}>${sentence(context, problem)}</a>`;

/** A link that was damaged or is of a later version: what of it could not be used. */
export function unreadNotice({ unread, words }: Context): TemplateResult | typeof nothing {
  if (unread.length === 0) return nothing;
  return html`<div class="notice" role="status">
    <p>${words.t('link.unread')}</p>
    <ul>
      ${unread.map((text) => html`<li><code>${text}</code></li>`)}
    </ul>
  </div>`;
}

/** A vendor's settings that are not in order: the line and the reason. None of them is used then. */
export function vendorNotice(context: Context): TemplateResult | typeof nothing {
  const { vendor, words } = context;
  if (vendor.problems.length === 0) return nothing;
  return html`<div class="notice vendor-problems" role="status">
    <h2>${words.t('vendor.wrong')}</h2>
    <ul>
      ${vendor.problems.map(({ line, notice }) => {
        const text = noticeText(context, 'problem', notice);
        return html`<li>
          ${words.t('vendor.line', { line, text })}${notice.pointer ? html` <code>${notice.pointer}</code>` : nothing}
        </li>`;
      })}
    </ul>
  </div>`;
}

export function problemSummary(context: Context): TemplateResult | typeof nothing {
  const { problems, words } = context;
  if (problems.length === 0) return nothing;
  return html`<div class="problems">
    <h2>${words.t('problems.title', { count: problems.length })}</h2>
    <ul>
      ${problems.map((problem) => html`<li>${problemLink(context, problem)}</li>`)}
    </ul>
    <p>${words.t('problems.stale')}</p>
  </div>`;
}
