// Reading a chart by keyboard: arrows walk over its points, and a line below says what stands there.
import { html, type TemplateResult } from 'lit-html';

import type { Context } from './context';

const places = new Map<string, number>();

/** The point that the keyboard is at, or null: none. */
export const focused = (chart: string): number | null => places.get(chart) ?? null;

export function onArrows(
  context: Context,
  chart: string,
  count: number,
  start: number,
): (event: KeyboardEvent) => void {
  return (event) => {
    const from = places.get(chart) ?? Math.max(0, start);
    const targets: Record<string, number> = {
      ArrowRight: places.has(chart) ? from + 1 : from,
      ArrowLeft: places.has(chart) ? from - 1 : from,
      Home: 0,
      End: count - 1,
      PageUp: from - 10,
      PageDown: from + 10,
    };
    const target = targets[event.key];
    if (target === undefined) return;
    event.preventDefault();
    places.set(chart, Math.min(count - 1, Math.max(0, target)));
    context.actions.redraw();
  };
}

export const reading = (chart: string, text: string): TemplateResult =>
  html`<p class="reading" id="${chart}-reading" role="status">${text}</p>`;

/** Another answer has other points. */
export const forgetReading = (): void => places.clear();
