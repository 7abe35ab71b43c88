// What is known before the planner has started: the catalogue, and the answer to what the page starts with. Both were worked
// out by the same planner when the page was built (build.mjs), so that the first number need not wait for it.
import type { Catalogue } from './wire';

/** JSON of {catalogue, request, report}; the build puts it here. */
declare const VRAMPLAN_FIRST: string;

export interface First {
  catalogue: Catalogue;
  request: string;
  report: string;
}

export const readFirst = (): First => JSON.parse(VRAMPLAN_FIRST) as First;
