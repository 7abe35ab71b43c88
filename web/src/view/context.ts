// What every view gets: words, number formats, the catalogue, and what the visitor can make happen.
import type { Format } from '../format';
import type { Choice, State } from '../form';
import type { Words } from '../i18n/i18n';
import type { Vendor } from '../vendor';
import type { Catalogue, DiagnosisAnswer, Notice, PlanRequest, Report } from '../wire';

export interface Actions {
  change(patch: Partial<State>): void;
  choose(pointer: string, choice: Choice | null): void; // null: back to the default
  apply(request: PlanRequest): void;
  chooseGpu(gpu: string, count: number): void;
  undo(): void;
  redraw(): void;
  redrawForm(): void;
  share(): void;
  saveJson(): void;
  saveCsv(): void;
  saveOffline(): void;
  keep(): void; // the present plan, to compare with
  drop(index: number): void;
  open(index: number): void;
  diagnose(text: string): void;
  stop(): void; // what is being worked out
  resume(): void;
}

/** A plan that was kept to be compared with. */
export interface KeptPlan {
  text: string; // as in a link
  report: Report;
}

export interface Context {
  words: Words;
  format: Format;
  catalogue: Catalogue;
  state: State;
  report: Report; // the last good answer
  problems: Notice[]; // of the current input; not empty: `report` belongs to an earlier one
  waiting: 'answer' | 'rest' | null; // what is not there yet
  progress: 'quiet' | 'working' | 'stopped'; // quiet: done, or not for longer than a visitor overlooks
  isFresh: (part: keyof Report) => boolean; // whether that part of the report belongs to the newest answer
  unread: string[]; // what of the link could not be used
  plans: KeptPlan[];
  canUndo: boolean;
  shared: { link: string; copied: boolean } | null; // just now
  link: string; // the text of the link to what is shown
  diagnosis: { text: string; answer: DiagnosisAnswer } | null;
  vendor: Vendor;
  actions: Actions;
  width: (name: string) => number; // of a measured element, in pixels
}
