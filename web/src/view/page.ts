// The whole page: steps on the left, the answer beside them, its grounds below. The places that it fills stand in index.html.
import { hydrate } from '@lit-labs/ssr-client';
import { html, nothing, render, type TemplateResult } from 'lit-html';

import { units } from '../format';
import { languages, type Language } from '../i18n/i18n';
import { accuracy } from './accuracy';
import { componentsTable } from './components-table';
import type { Context } from './context';
import { compare } from './compare';
import { curves } from './curves';
import { diagnose } from './diagnose';
import { fitMatrix } from './fit-matrix';
import { launch } from './launch';
import { layoutSuggestions } from './layouts';
import { memoryBar } from './memory-bar';
import { threeNumbers } from './numbers';
import { afterTraining, growth } from './outlook';
import { placementSection } from './placement';
import { problemSummary, unreadNotice, vendorNotice } from './problems';
import { speedSection } from './speed';
import { changeSuggestions } from './changes';
import { hardwareSuggestions } from './hardware';
import { detailsField, hardwareStep, modelStep, trainingStep } from './steps';
import { timeline } from './timeline';
import { linkTo } from '../share';
import type { Report } from '../wire';
import { verdictBar, verdictCard, verdictText, verdictTitle } from './verdict';

interface Entry<T> {
  value: T;
  name: string;
  language?: string;
}

function switcher<T extends string>(
  label: string,
  entries: readonly Entry<T>[],
  chosen: T,
  choose: (value: T) => void,
) {
  const button = ({ value, name, language }: Entry<T>) =>
    html`<button
      type="button"
      lang=${language ?? nothing}
      aria-pressed=${value === chosen ? 'true' : 'false'}
      @click=${() => choose(value)}
    >
      ${name}
    </button>`;
  return html`<div class="switcher" role="group" aria-label=${label}>${entries.map(button)}</div>`;
}

const languageNames: Record<Language, string> = { nl: 'Nederlands', en: 'English' };
const languageEntries = languages.map((value) => ({ value, name: languageNames[value], language: value }));
const unitEntries = units.map((value) => ({ value, name: value }));

const mark = html`<svg viewBox="0 0 32 32" aria-hidden="true" focusable="false">
  <rect width="32" height="32" rx="7" />
  <path class="brand-line" d="M7 10h18v12H7zM11 22v3m5-3v3m5-3v3M11 7v3m5-3v3m5-3v3" />
  <path class="brand-static" d="M9 12h8v8H9z" />
  <path class="brand-temporary" d="M17 12h4v8h-4z" />
</svg>`;

/** What a contact button carries: the verdict and the link, readable, and only when it is pressed. */
function contactLink(context: Context): string {
  const { link } = context.vendor.contact!;
  const text = `${verdictText(context)}\n${linkTo(context.link)}`;
  const query: Record<string, string> = link.startsWith('mailto:')
    ? { subject: context.words.t('title'), body: text }
    : { plan: text };
  const joined = new URLSearchParams(query).toString().replaceAll('+', '%20');
  return `${link}${link.includes('?') ? '&' : '?'}${joined}`;
}

function contact(context: Context): TemplateResult | typeof nothing {
  const { vendor, words } = context;
  if (!vendor.contact) return nothing;
  return html`<button
    type="button"
    class="primary"
    @click=${() => window.open(contactLink(context), '_blank', 'noopener')}
  >
    ${vendor.contact.label || words.t('vendor.contact')}
  </button>`;
}

function header({ words, state, actions, vendor }: Context): TemplateResult {
  const logo = vendor.logo ? html`<img src=${vendor.logo} alt="" height="32" />` : mark;
  return html`<div class="frame">
    <a class="skip" href="#answer">${words.t('skip')}</a>
    <span class="brand">${logo}<span>${vendor.name ? `${vendor.name} · ` : ''}${words.t('title')}</span></span>
    ${switcher('Taal / Language', languageEntries, state.language, (language) => actions.change({ language }))}
  </div>`;
}

const intro = ({ words }: Context): TemplateResult =>
  html`<h1>${words.t('headline')}</h1>
    <p>${words.t('lead')}</p>`;

const footer = ({ words, report }: Context): TemplateResult =>
  html`<div class="frame">
    <p>${words.t('footer.private')}</p>
    <p>${words.t('footer.estimate')}</p>
    <p>${words.t('footer.version', { version: report.version })}</p>
  </div>`;

function undoNotice({ words, actions, canUndo }: Context): TemplateResult | typeof nothing {
  if (!canUndo) return nothing;
  return html`<p class="undo" role="status">
    ${words.t('undo.done')} <button type="button" class="link" @click=${actions.undo}>${words.t('undo')}</button>
  </p>`;
}

/** Work that takes its time, with a way to end it. */
function progressLine({ words, waiting, progress, actions }: Context): TemplateResult | typeof nothing {
  if (progress === 'quiet' || waiting === null) return nothing;
  const working = progress === 'working';
  return html`<p class="progress" role="status">
    ${working ? html`<span class="progress-mark" aria-hidden="true"></span>` : nothing}
    ${words.t(`progress.${progress}.${waiting}`)}
    <button type="button" class="link" @click=${working ? actions.stop : actions.resume}>
      ${words.t(working ? 'progress.stop' : 'progress.resume')}
    </button>
  </p>`;
}

/** Whether the answer shown belongs to an earlier input, and the visitor has to know. */
const isStale = ({ problems, waiting, progress }: Context): boolean =>
  problems.length > 0 || (waiting === 'answer' && progress !== 'quiet');

const notices = (context: Context): TemplateResult =>
  html`${unreadNotice(context)}${problemSummary(context)}${undoNotice(context)}`;

const verdict = (context: Context): TemplateResult =>
  html`${isStale(context) ? html`<p class="stale-label">${context.words.t('answer.stale')}</p>` : nothing}
  ${verdictCard(context)}`;

function tools(context: Context): TemplateResult {
  const { words, problems, state, actions } = context;
  return html`${switcher(words.t('units'), unitEntries, state.unit, (unit) => actions.change({ unit }))}
    <button type="button" class="quiet" @click=${actions.share}>${words.t('share.link')}</button>
    <button type="button" class="quiet" @click=${actions.keep} ?disabled=${problems.length > 0}>
      ${words.t('compare.keep')}
    </button>
    <details class="save">
      <summary class="quiet">${words.t('share.save')}</summary>
      <div class="save-menu">
        <button type="button" class="link" @click=${actions.saveJson}>${words.t('share.json')}</button>
        <button type="button" class="link" @click=${actions.saveCsv}>${words.t('share.csv')}</button>
        <button type="button" class="link" @click=${() => print()}>${words.t('share.print')}</button>
        <button type="button" class="link" @click=${actions.saveOffline}>${words.t('share.offline')}</button>
      </div>
    </details>
    ${contact(context)}`;
}

/** What is said aloud of an answer. */
const told = (context: Context): TemplateResult => {
  const { words, problems, report } = context;
  const count = problems.length;
  return html`${count > 0 ? words.t('problems.title', { count }) : verdictTitle(context, report)}`;
};

function sharedLink({ words, shared }: Context): TemplateResult | typeof nothing {
  if (!shared) return nothing;
  return html`<div class="shared" role="status">
    <label
      >${words.t(shared.copied ? 'share.copied' : 'share.copy_this')}
      <input
        type="text"
        readonly
        .value=${shared.link}
        @focus=${(event: Event) => (event.target as HTMLInputElement).select()}
    /></label>
  </div>`;
}

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

const placeOf = (name: string) => document.querySelector<HTMLElement>(`[data-place=${name}]`)!;

function draw(drawn: Record<string, View>, context: Context): void {
  for (const [name, view] of Object.entries(drawn)) render(view(context), placeOf(name));
}

export function drawAnswer(context: Context): void {
  document.querySelector('.answer-body')!.classList.toggle('stale', isStale(context));
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
  document.getElementById('grounds')!.replaceChildren(...shownParts(context).map(newPart));
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

function newPart(): HTMLElement {
  const part = document.createElement('div');
  part.className = 'part';
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
