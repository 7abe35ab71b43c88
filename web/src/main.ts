// Starts the planner and keeps page, address and answer in step with what the visitor fills in.
import { render } from 'lit-html';

import { reportHeight } from './embed';
import {
  initialState,
  kindOf,
  optionAt,
  requestOf,
  stateOf,
  textOf,
  withRequest,
  type Choice,
  type State,
} from './form';
import { formatIn } from './format';
import { wordsIn } from './i18n/i18n';
import { startPlanner, type Planner } from './planner';
import { copyText, csvOf, jsonOf, linkTo, offlinePage, save, showInAddress } from './share';
import { findVendor, type Vendor } from './vendor';
import type { Actions, Context, KeptPlan } from './view/context';
import { grounds, page, type Shared } from './view/page';
import { forgetReading } from './view/reading';
import type { Catalogue, Notice, PlanRequest, Report } from './wire';

const mostPlans = 2; // beside the present one
// Milliseconds.
const groundsDelay = 30; // the answer is painted first, what it rests on after it
const formDelay = 50; // a form waits this long for its answer, to be drawn once
const slow = 300; // from here on a visitor is told that there is work, and can stop it

class Application {
  private state: State;
  private readonly catalogue: Catalogue;
  private fresh: Report | null = null; // the last good answer, as far as it is there
  private report: Report | null = null; // with what is not there yet as it was for the input before
  private waiting: Context['waiting'] = null;
  private progress: Context['progress'] = 'quiet';
  private turn = 0; // of the input: answers to earlier ones are not shown
  private problems: Notice[] = [];
  private unread: string[] = [];
  private plans: KeptPlan[] = [];
  private before: State | null = null; // what "undo" goes back to
  private lastChanged = '';
  private drawn = false;
  private shared: Shared | null = null;
  private diagnosis: Context['diagnosis'] = null;
  private timer = 0;
  private formTimer = 0;
  private slowTimer = 0;
  private readonly widths = new Map<string, number>();
  private readonly observer = new ResizeObserver(() => this.measure());

  constructor(
    private readonly planner: Planner,
    private readonly vendor: Vendor,
    private readonly container: HTMLElement,
    private readonly saved: HTMLInputElement,
  ) {
    this.catalogue = planner.catalogue;
    this.state = { ...initialState, ...(vendor.language && { language: vendor.language }) };
  }

  async start(): Promise<void> {
    (await this.restore(location.hash.slice(1))) || (await this.restore(this.saved.getAttribute('value') ?? ''));
    await this.plan();
    this.observer.observe(this.container);
    window.addEventListener('popstate', () => void this.restoreAddress());
    window.addEventListener('hashchange', () => void this.restoreAddress());
    document.addEventListener('click', followInside);
  }

  private async restore(text: string): Promise<boolean> {
    const read = text.includes('=') ? stateOf(text, this.catalogue) : null;
    if (!read) return false;
    this.state = read.state;
    this.unread = read.unread;
    this.plans = (await Promise.all(read.plans.map((plan) => this.planned(plan)))).flat();
    return true;
  }

  /** A kept plan with its answer; none when it has problems. */
  private async planned(text: string): Promise<KeptPlan[]> {
    const read = stateOf(text, this.catalogue);
    const request = read && requestOf(read.state, this.catalogue);
    if (!request || 'code' in request) return [];
    const report = await this.planner.kept(request);
    return report?.problems.length === 0 ? [{ text, report }] : [];
  }

  private text(): string {
    return textOf(
      this.state,
      this.plans.map((plan) => plan.text),
    );
  }

  private async restoreAddress(): Promise<void> {
    const text = location.hash.slice(1);
    if (text === this.text()) return;
    if (text === '') this.state = initialState;
    else if (!(await this.restore(text))) return;
    this.before = null;
    this.remember();
    await this.plan();
  }

  private readonly actions: Actions = {
    change: (patch) => this.update({ ...this.state, ...patch }, Object.keys(patch).join()),
    choose: (pointer, choice) => this.update({ ...this.state, training: this.trainingWith(pointer, choice) }, pointer),
    apply: (request: PlanRequest) => this.applied(withRequest(this.state, request, this.catalogue)),
    chooseGpu: (gpu, count) => {
      this.applied({ ...this.state, hardwareBy: 'gpu', gpu, count: String(count), zero: '3' });
      document.getElementById('answer')?.scrollIntoView();
    },
    undo: () => {
      if (this.before) this.update(this.before, 'undo');
      this.before = null;
      this.draw();
    },
    redraw: () => this.drawAll(),
    share: () => void this.share(),
    saveJson: () => {
      const { request } = this.fresh!;
      if (request) save('vram-plan.json', 'application/json', jsonOf(request, this.fresh!));
    },
    saveCsv: () => save('vram-plan.csv', 'text/csv', csvOf(this.fresh!)),
    saveOffline: () => void this.saveOffline(),
    keep: () => {
      if (this.problems.length > 0 || this.waiting === 'answer') return;
      this.plans = [...this.plans, { text: textOf(this.state), report: this.fresh! }].slice(-mostPlans);
      this.remember();
      this.drawAll();
    },
    drop: (index) => {
      this.plans = this.plans.filter((_, at) => at !== index);
      this.remember();
      this.drawAll();
    },
    open: (index) => {
      const read = stateOf(this.plans[index]!.text, this.catalogue);
      if (!read) return;
      const present = { text: textOf(this.state), report: this.fresh! };
      this.plans = this.plans.map((plan, at) => (at === index ? present : plan));
      this.update({ ...read.state, language: this.state.language, unit: this.state.unit }, 'open');
    },
    diagnose: (text) => void this.diagnose(text),
    stop: () => {
      this.planner.stop();
      this.progress = 'stopped';
      this.drawAll();
    },
    resume: () => void this.plan(),
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

  private applied(state: State): void {
    const before = this.state;
    this.update(state, 'apply');
    this.before = before;
    this.draw();
  }

  /** Whether a field is typed in, letter by letter. */
  private isTyped(changed: string): boolean {
    const option = optionAt(this.catalogue, changed);
    const kind = option && kindOf(option);
    return kind === 'number' || kind === 'text' || ['config', 'size', 'count'].includes(changed);
  }

  /** `changed` names what was filled in: typing on in one field is one entry in the history. */
  private update(state: State, changed: string): void {
    const entry = changed === this.lastChanged && this.isTyped(changed) ? 'same' : 'new';
    this.lastChanged = changed;
    this.state = state;
    this.shared = null;
    this.unread = [];
    this.before = null;
    this.remember(entry);
    void this.plan();
  }

  private remember(entry: 'new' | 'same' = 'same'): void {
    const text = this.text();
    this.saved.setAttribute('value', text);
    if (location.hash.slice(1) !== text) showInAddress(text, entry);
  }

  private async diagnose(text: string): Promise<void> {
    const request = this.problems.length === 0 ? (this.fresh?.request ?? null) : null;
    const answer = await this.planner.diagnose(text, request);
    if (answer) this.diagnosis = { text, answer };
    this.drawAll();
  }

  /** Tells, after a while, that there is work. */
  private wait(waiting: Context['waiting']): void {
    this.waiting = waiting;
    if (waiting) this.container.dataset['waiting'] = waiting;
    else delete this.container.dataset['waiting'];
    clearTimeout(this.slowTimer);
    clearTimeout(this.formTimer);
    this.progress = 'quiet';
    if (!waiting) return;
    this.slowTimer = window.setTimeout(() => {
      this.progress = 'working';
      this.draw();
    }, slow);
    if (waiting === 'answer') this.formTimer = window.setTimeout(() => this.draw(), formDelay);
  }

  /** The answer to the present input, and then what rests on it. */
  private async plan(): Promise<void> {
    const turn = ++this.turn;
    const request = requestOf(this.state, this.catalogue);
    this.wait('answer');
    const answer = 'code' in request ? { version: '', problems: [request] } : await this.planner.answer(request);
    if (!answer || turn !== this.turn) return;
    this.problems = answer.problems;
    if (this.problems.length === 0) this.show(answer);
    if (!this.fresh) this.show(await this.firstAnswer());
    this.wait(this.problems.length === 0 ? 'rest' : null);
    forgetReading();
    this.draw();
    if (this.problems.length === 0) await this.complete(request as PlanRequest, turn);
  }

  private show(answer: Report): void {
    this.fresh = answer;
    this.report = { ...this.report, ...answer };
  }

  private async complete(request: PlanRequest, turn: number): Promise<void> {
    const whole = await this.planner.plan(request);
    if (!whole || turn !== this.turn) return;
    this.fresh = this.report = whole;
    this.wait(null);
    this.drawAll();
  }

  /** A link may hold input that has no answer; the page then shows that of the first example. */
  private async firstAnswer(): Promise<Report> {
    return (await this.planner.kept(requestOf(initialState, this.catalogue) as PlanRequest))!;
  }

  private context(): Context {
    const { state, catalogue, problems, waiting, progress, actions, unread, plans, diagnosis, vendor } = this;
    return {
      words: wordsIn(state.language),
      format: formatIn(state.language, state.unit),
      catalogue,
      state,
      report: this.report!,
      problems,
      waiting,
      progress,
      isFresh: (part) => part in this.fresh!,
      unread,
      plans,
      canUndo: this.before !== null,
      link: this.text(),
      diagnosis,
      vendor,
      actions,
      width: (name) => this.widths.get(name) ?? 640,
    };
  }

  private draw(): void {
    if (!this.report) return;
    clearTimeout(this.formTimer);
    const context = this.context();
    if (!this.drawn) this.container.replaceChildren();
    this.drawn = true;
    document.documentElement.lang = this.state.language;
    document.title = context.words.t('title');
    render(page(context, this.shared), this.container);
    clearTimeout(this.timer);
    if (document.getElementById('grounds')!.childElementCount === 0) this.drawGrounds();
    else this.timer = window.setTimeout(() => this.drawGrounds(), groundsDelay);
    this.measure();
  }

  private drawAll(): void {
    this.draw();
    this.drawGrounds();
  }

  private drawGrounds(): void {
    clearTimeout(this.timer);
    render(grounds(this.context()), document.getElementById('grounds')!);
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
    const link = linkTo(this.text());
    this.shared = { link, copied: await copyText(link) };
    this.draw();
  }

  private async saveOffline(): Promise<void> {
    const text = await offlinePage(this.text(), this.vendor.text);
    if (text) save('vram-planner.html', 'text/html', text);
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
  const vendor = await findVendor();
  const [planner, problems] = await startPlanner(vendor.hardware);
  vendor.addHardwareProblems(problems);
  const saved = document.getElementById('saved-state') as HTMLInputElement;
  await new Application(planner, vendor, document.getElementById('page')!, saved).start();
  hideDeadCopyLine();
  reportHeight();
}

void start();
