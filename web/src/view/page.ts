// The whole page: steps on the left, the answer beside them, its grounds below. The places that it fills stand in index.html.
import { hydrate } from '@lit-labs/ssr-client';
import { html, nothing, render, type TemplateResult } from 'lit-html';

import { accuracy } from './accuracy';
import { componentsTable } from './components-table';
import type { Context } from './context';
import { compare } from './compare';
import { curves } from './curves';
import { diagnose } from './diagnose';
import { fitMatrix } from './fit-matrix';
import { footer, header, intro, isStale, notices, progressLine, sharedLink, told, tools, verdict } from './frame';
import { launch } from './launch';
import { layoutSuggestions } from './layouts';
import { memoryBar } from './memory-bar';
import { threeNumbers } from './numbers';
import { afterTraining, growth } from './outlook';
import { placementSection } from './placement';
import { vendorNotice } from './problems';
import { speedSection } from './speed';
import { changeSuggestions } from './changes';
import { hardwareSuggestions } from './hardware';
import { detailsField, hardwareStep, modelStep, trainingStep } from './steps';
import { timeline } from './timeline';
import type { Report } from '../wire';
import { verdictBar } from './verdict';

type View = (context: Context) => TemplateResult | typeof nothing;

const answerViews: Record<string, View> = {
  notices,
  verdict,
  numbers: threeNumbers,
  memory: memoryBar,
  progress: progressLine,
  bar: verdictBar,
  told,
};
const formViews: Record<string, View> = {
  header,
  vendor: vendorNotice,
  intro,
  model: modelStep,
  training: trainingStep,
  details: detailsField,
  hardware: hardwareStep,
  tools,
  shared: sharedLink,
  footer,
};
export const views = { ...answerViews, ...formViews };

const found = new Map<string, HTMLElement>(); // looked for once: a search goes through the whole page

function placeOf(name: string): HTMLElement {
  let place = found.get(name);
  if (!place) found.set(name, (place = document.querySelector<HTMLElement>(`[data-place=${name}]`)!));
  return place;
}

function draw(drawn: Record<string, View>, context: Context): void {
  for (const [name, view] of Object.entries(drawn)) render(view(context), placeOf(name));
}

const markStale = (context: Context): void =>
  void document.querySelector('.answer-body')!.classList.toggle('stale', isStale(context));

export function drawAnswer(context: Context): void {
  markStale(context);
  draw(answerViews, context);
}
/** The steps, and what else stands around the answer. */
export const drawForm = (context: Context): void => draw(formViews, context);

export type DrawPart = () => void;

/**
 * Takes over the text that stands in the page, place by place: `built` is what the build wrote it from; null in a copy that
 * was saved after use, or with another answer.
 */
export function takeOver(context: Context, built: Context | null): DrawPart[] {
  markStale(context);
  document.getElementById('grounds')!.replaceChildren(...shownParts(context).map(([section]) => newPart(section)));
  return Object.entries(views).map(([name, view]) => () => {
    const place = placeOf(name);
    try {
      if (built) return hydrate(view(built), place);
    } catch (error) {
      console.error(error); // an extension of the browser has changed the text
    }
    place.replaceChildren();
    render(view(context), place);
  });
}

function newPart(section: string): HTMLElement {
  const part = document.createElement('div');
  part.className = 'part';
  part.dataset['part'] = section; // its height until it is in sight is in styles.css
  return part;
}

/** The parts below the answer, in order, with what of the report they show; a vendor may leave some out. */
const parts: readonly [section: string, view: View, shows?: keyof Report][] = [
  ['compare', compare],
  ['table', componentsPanel],
  ['placement', placementSection],
  ['changes', changeSuggestions, 'suggestions'],
  ['curves', curves, 'curves'],
  ['timeline', timeline, 'timeline'],
  ['speed', speedSection],
  ['layouts', layoutSuggestions, 'layouts'],
  ['hardware', hardwareSuggestions, 'suggestions'],
  ['growth', growth, 'growth'],
  ['matrix', fitMatrix, 'fit_matrix'],
  ['launch', launch, 'launch'],
  ['after', afterTraining, 'after_training'],
  ['accuracy', accuracy, 'accuracy'],
  ['diagnose', diagnose],
];

const shownParts = ({ vendor }: Context) => parts.filter(([section]) => !vendor.hidden.includes(section));

function componentsPanel(context: Context): TemplateResult {
  const { words } = context;
  return html`<section class="panel" id="table" aria-labelledby="table-title" tabindex="-1">
    <h2 id="table-title">${words.t('table.title')}</h2>
    <p>${words.t('table.text')}</p>
    ${componentsTable(context)}
  </section>`;
}

/**
 * What the answer rests on, in order; drawn after it and one by one, so that typing never waits. A part that is not there
 * yet is the one of the input before; at first the list ends there, so that what is shown does not move.
 */
export function grounds(context: Context): DrawPart[] {
  const own = shownParts(context);
  const missing = own.findIndex(([, , shows]) => shows && context.report[shows] === undefined);
  const places = document.getElementById('grounds')!.children;
  return (missing < 0 ? own : own.slice(0, missing)).map(([, view, shows], index) => {
    const stale = isStale(context) || (shows !== undefined && !context.isFresh(shows));
    const place = places[index] as HTMLElement;
    return () => {
      place.classList.toggle('stale', stale);
      render(view(context), place);
    };
  });
}
