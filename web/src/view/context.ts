// What every view gets: words, number formats, the catalogue, and what the visitor can make happen.
import type { Format } from '../format';
import type { Choice, State } from '../form';
import type { Words } from '../i18n/i18n';
import type { Catalogue, Notice, PlanRequest, Report } from '../wire';

export interface Actions {
  change(patch: Partial<State>): void;
  choose(pointer: string, choice: Choice | null): void; // null: back to the default
  apply(request: PlanRequest): void;
  chooseGpu(gpu: string, count: number): void;
  redraw(): void;
  share(): void;
  download(): void;
}

export interface Context {
  words: Words;
  format: Format;
  catalogue: Catalogue;
  state: State;
  report: Report; // the last good answer
  problems: Notice[]; // of the current input; not empty: `report` belongs to an earlier one
  actions: Actions;
  width: (name: string) => number; // of a measured element, in pixels
}
