// Starts the planner and keeps page, address and answer in step with what the visitor fills in.
import { render } from 'lit-html';

import { startEngine, type Engine } from './engine';
import { initialState, optionAt, requestOf, stateOf, textOf, withRequest, type Choice, type State } from './form';
import { formatIn } from './format';
import { wordsIn } from './i18n/i18n';
import { copyText, download, linkTo, showInAddress } from './share';
import type { Actions, Context } from './view/context';
import { page, type Shared } from './view/page';
import type { Catalogue, Notice, PlanRequest, Report } from './wire';

const planDelay = 60; // milliseconds after the last keystroke

class Application {
  private state: State;
  private readonly catalogue: Catalogue;
  private report: Report | null = null;
  private problems: Notice[] = [];
  private shared: Shared | null = null;
  private timer = 0;
  private readonly widths = new Map<string, number>();
  private readonly observer = new ResizeObserver(() => this.measure());

  constructor(
    private readonly engine: Engine,
    private readonly container: HTMLElement,
    private readonly saved: HTMLInputElement,
  ) {
    this.catalogue = engine.catalogue();
    this.state = this.restored() ?? initialState;
    this.container.replaceChildren();
    this.plan();
    this.observer.observe(container);
    window.addEventListener('hashchange', () => this.restoreAddress());
    document.addEventListener('click', followInside);
  }

  /** The address first, then what a saved page remembers. */
  private restored(): State | null {
    const address = location.hash.slice(1);
    return (
      stateOf(address.includes('=') ? address : '', this.catalogue) ??
      stateOf(this.saved.getAttribute('value') ?? '', this.catalogue)
    );
  }

  private restoreAddress(): void {
    const state = location.hash.includes('=') ? stateOf(location.hash.slice(1), this.catalogue) : null;
    if (!state || textOf(state) === textOf(this.state)) return;
    this.state = state;
    this.plan();
  }

  private readonly actions: Actions = {
    change: (patch) => this.update({ ...this.state, ...patch }),
    choose: (pointer, choice) => this.update({ ...this.state, training: this.trainingWith(pointer, choice) }),
    apply: (request: PlanRequest) => this.update(withRequest(this.state, request, this.catalogue)),
    chooseGpu: (gpu, count) => {
      this.update({ ...this.state, hardwareBy: 'gpu', gpu, count: String(count), zero: '3' });
      document.getElementById('answer')?.scrollIntoView();
    },
    redraw: () => this.draw(),
    share: () => void this.share(),
    download: () => {
      if (this.report?.request) download('vram-plan.json', this.report.request, this.report);
    },
  };

  private trainingWith(pointer: string, choice: Choice | null): State['training'] {
    const training = { ...this.state.training };
    if (choice === null) delete training[pointer];
    else training[pointer] = choice;
    // The stored format of the base weights follows from the method until the visitor chooses one.
    if (pointer === '/training/method') delete training['/training/base_weights'];
    if (choice === 'freeze')
      training['/training/trainable_layers'] ??= String(
        optionAt(this.catalogue, '/training/trainable_layers')?.minimum ?? '',
      );
    return training;
  }

  private update(state: State): void {
    this.state = state;
    this.shared = null;
    const text = textOf(state);
    this.saved.setAttribute('value', text);
    showInAddress(text);
    this.draw();
    clearTimeout(this.timer);
    this.timer = window.setTimeout(() => this.plan(), planDelay);
  }

  private plan(): void {
    const request = requestOf(this.state, this.catalogue);
    const report = 'code' in request ? null : this.engine.plan(request);
    this.problems = 'code' in request ? [request] : report!.problems;
    if (report && this.problems.length === 0) this.report = report;
    this.report ??= this.firstReport();
    this.draw();
  }

  /** A link may hold input that has no answer; the page then shows that of the first example. */
  private firstReport(): Report {
    return this.engine.plan(requestOf(initialState, this.catalogue) as PlanRequest);
  }

  private context(): Context {
    const { state, catalogue, problems, actions } = this;
    const words = wordsIn(state.language);
    const format = formatIn(state.language, state.unit);
    return {
      words,
      format,
      catalogue,
      state,
      report: this.report!,
      problems,
      actions,
      width: (name) => this.widths.get(name) ?? 640,
    };
  }

  private draw(): void {
    if (!this.report) return;
    const context = this.context();
    document.documentElement.lang = this.state.language;
    document.title = context.words.t('title');
    render(page(context, this.shared), this.container);
    this.measure();
  }

  /** Charts are drawn in pixels of the space they have. */
  private measure(): void {
    let changed = false;
    for (const element of this.container.querySelectorAll<HTMLElement>('[data-measure]')) {
      const width = Math.round(element.clientWidth);
      changed ||= width > 0 && width !== this.widths.get(element.dataset['measure']!);
      if (width > 0) this.widths.set(element.dataset['measure']!, width);
    }
    if (changed) this.draw();
  }

  private async share(): Promise<void> {
    const link = linkTo(textOf(this.state));
    this.shared = { link, copied: await copyText(link) };
    this.draw();
  }
}

/** Links within the page scroll and focus; the address keeps the inputs. */
function followInside(event: MouseEvent): void {
  const link = (event.target as Element).closest?.('a[href^="#"]');
  const target = link && document.getElementById(link.getAttribute('href')!.slice(1));
  if (!target || event.defaultPrevented) return;
  event.preventDefault();
  target.scrollIntoView();
  target.focus({ preventScroll: true });
}

/** The line that says that this copy does not run is hidden by a sheet that is never saved with the page. */
function hideDeadCopyLine(): void {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync('#not-running { display: none }');
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
}

async function start(): Promise<void> {
  const engine = await startEngine();
  new Application(engine, document.getElementById('page')!, document.getElementById('saved-state') as HTMLInputElement);
  hideDeadCopyLine();
}

void start();
