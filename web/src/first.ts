// What the page starts with, before the planner has: the catalogue, and the answer to the first request. Both were worked out
// by the same planner when the page was built (build.mjs), so that the first number need not wait for it.
import { initialState, requestOf } from './form';
import { formatIn } from './format';
import { wordsIn } from './i18n/i18n';
import { noVendor } from './vendor';
import type { Actions, Context } from './view/context';
import type { Catalogue, PlanRequest, Report } from './wire';

/** JSON of {catalogue, request, report}; the build puts it here. */
declare const VRAMPLAN_FIRST: string;

export interface First {
  catalogue: Catalogue;
  request: string;
  report: string;
}

export const readFirst = (): First => JSON.parse(VRAMPLAN_FIRST) as First;

export const initialRequest = (catalogue: Catalogue): PlanRequest => requestOf(initialState, catalogue) as PlanRequest;

const desktop: Record<string, number> = { 'memory-bar': 744 }; // pixels, at 1440

/** What the text of the page was written from, and what lit needs to take it over. */
export const firstContext = (catalogue: Catalogue, report: Report, actions: Actions): Context => ({
  words: wordsIn(initialState.language),
  format: formatIn(initialState.language, initialState.unit),
  catalogue,
  state: initialState,
  report,
  problems: [],
  waiting: null,
  progress: 'quiet',
  isFresh: () => true,
  unread: [],
  plans: [],
  canUndo: false,
  shared: null,
  link: '',
  diagnosis: null,
  vendor: noVendor,
  actions,
  width: (name) => desktop[name] ?? 640,
});
