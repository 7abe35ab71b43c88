// A part that opens. What is in it is drawn once it is open: most visitors leave most of them closed.
import { html, nothing, type TemplateResult } from 'lit-html';

import type { Context } from './context';

const opened = new Set<string>();

interface Shape {
  key: string; // one for each on the page
  kind: string; // its class
  summary: string;
  forced?: boolean; // open whatever the visitor did: there is a problem in it, or the choice that was made
}

export function disclosure(
  { actions }: Context,
  { key, kind, summary, forced = false }: Shape,
  content: () => unknown,
): TemplateResult {
  const open = forced || opened.has(key);
  const onToggle = ({ target }: Event) => {
    const isOpen = (target as HTMLDetailsElement).open;
    if (isOpen === opened.has(key)) return;
    if (!opened.delete(key)) opened.add(key);
    actions.redraw();
  };
  return html`<details class=${kind} ?open=${open} @toggle=${onToggle}>
    <summary>${summary}</summary>
    ${open ? content() : nothing}
  </details>`;
}

/** The numbers behind a chart. */
export const behind = (context: Context, key: string, summary: string, label: string, table: () => TemplateResult) =>
  disclosure(
    context,
    { key, kind: 'as-table', summary },
    () => html`<div class="scroll" tabindex="0" role="region" aria-label=${label}>${table()}</div>`,
  );
