// Starts the planner and keeps page, address and answer in step with what the visitor fills in.
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
import { firstContext, initialRequest } from './first';
import { formatIn } from './format';
import { wordsIn } from './i18n/i18n';
import { breath, painted } from './pace';
import { startPlanner, type Planner } from './planner';
import { copyText, csvOf, jsonOf, linkTo, offlinePage, save, showInAddress } from './share';
import { findVendor, type Vendor } from './vendor';
import type { Actions, Context, KeptPlan } from './view/context';
import { drawAnswer, drawForm, grounds, takeOver } from './view/page';
import { pieces } from './view/piece';
import { forgetReading } from './view/reading';
import type { Catalogue, Notice, PlanRequest, Report } from './wire';

const mostPlans = 2; // beside the present one
const ofFramework = [
  'framework_version',
  'trainer',
  'kernels',
  'recurrence',
  'cross_entropy',
  'logits_upcast',
  'kbit_upcast',
  'fp32_gradients',
  'recompute_modules',
].map((name) => `/training/${name}`);
// Milliseconds.
const addressDelay = 100; // what is filled in is in the address by then, answered or not
const formDelay = 50; // a form waits this long for its answer, to be drawn once
const slow = 300; // from here on a visitor is told that there is work, and can stop it

const measuredIn = (container: HTMLElement) => container.querySelectorAll<HTMLElement>('[data-measure]');

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
  private keeps = false; // the present one as well, once its answer is there
  private before: State | null = null; // what "undo" goes back to
  private lastChanged = '';
  private entry: 'same' | 'new' = 'same'; // in the history, when the address is written
  private drawn = false;
  private shared: Context['shared'] = null;
  private diagnosis: Context['diagnosis'] = null;
  private addressTimer = 0;
  private formTimer = 0;
  private formIsDue = false;
  private drawings = 0; // of what follows the answer
  private drawing = Promise.resolve(); // the last of them
  private slowTimer = 0;
  private readonly widths = new Map<string, number>();
  private readonly observer = new ResizeObserver((entries) => this.measured(entries));

  constructor(
    private readonly planner: Planner,
    private readonly vendor: Vendor,
    private readonly container: HTMLElement,
    private readonly saved: HTMLMetaElement,
  ) {
    this.catalogue = planner.catalogue;
    this.state = { ...initialState, ...(vendor.language && { language: vendor.language }) };
    for (const element of measuredIn(container)) this.widths.set(element.dataset['measure']!, element.clientWidth);
  }

  async start(): Promise<void> {
    (await this.restore(location.hash.slice(1))) || (await this.restore(this.saved.content));
    await this.plan();
    window.addEventListener('popstate', () => void this.restoreAddress());
    window.addEventListener('hashchange', () => void this.restoreAddress());
    document.addEventListener('click', followInside);
    document.addEventListener('submit', (event) => event.preventDefault());
    for (const sign of ['pointermove', 'touchstart', 'keydown'])
      document.addEventListener(sign, () => this.planner.comeNear(), { once: true, passive: true });
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
    await this.plan();
  }

  private readonly actions: Actions = {
    change: (patch) => this.update({ ...this.state, ...patch }, Object.keys(patch).join()),
    choose: (pointer, choice) => this.update({ ...this.state, training: this.trainingWith(pointer, choice) }, pointer),
    apply: (request: PlanRequest) => this.applied(withRequest(this.state, request, this.catalogue)),
    chooseGpu: (gpu, count) => {
      this.applied({ ...this.state, hardwareBy: 'gpu', gpu, count: String(count), zero: 'search' });
      document.getElementById('answer')?.scrollIntoView();
    },
    undo: () => {
      if (this.before) this.update(this.before, 'undo');
    },
    redrawForm: () => drawForm(this.context()),
    redraw: () => {
      const context = this.context();
      drawAnswer(context);
      drawForm(context);
      for (const draw of grounds(context)) draw();
      for (const draw of pieces()) draw();
    },
    share: () => void this.share(),
    saveJson: () => {
      const { request } = this.fresh!;
      if (request) save('vram-plan.json', 'application/json', jsonOf(request, this.fresh!));
    },
    saveCsv: () => save('vram-plan.csv', 'text/csv', csvOf(this.fresh!)),
    saveOffline: () => void this.saveOffline(),
    keep: () => {
      this.keeps = true;
      if (this.waiting === 'answer') return;
      this.keepPlan();
      void this.draw();
    },
    drop: (index) => {
      this.plans = this.plans.filter((_, at) => at !== index);
      this.remember();
      void this.draw();
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
      void this.draw();
    },
    resume: () => void this.plan(),
  };

  private trainingWith(pointer: string, choice: Choice | null): State['training'] {
    const training = { ...this.state.training };
    if (choice === null) delete training[pointer];
    else training[pointer] = choice;
    // The stored format of the base weights follows from the method until the visitor chooses one, and so do the
    // kernels from the framework.
    if (pointer === '/training/method') delete training['/training/base_weights'];
    if (pointer === '/training/framework') for (const other of ofFramework) delete training[other];
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
  }

  /** Whether a field is typed in, letter by letter. */
  private isTyped(changed: string): boolean {
    const option = optionAt(this.catalogue, changed);
    const kind = option && kindOf(option);
    return kind === 'number' || kind === 'text' || ['config', 'size', 'count'].includes(changed);
  }

  /** `changed` names what was filled in: typing on in one field is one entry in the history. */
  private update(state: State, changed: string): void {
    if (changed !== this.lastChanged || !this.isTyped(changed)) this.entry = 'new';
    this.lastChanged = changed;
    this.state = state;
    this.shared = null;
    this.unread = [];
    this.before = null;
    clearTimeout(this.addressTimer);
    this.addressTimer = window.setTimeout(() => this.remember(), addressDelay);
    void this.plan();
  }

  private remember(): void {
    clearTimeout(this.addressTimer);
    const text = this.text();
    this.saved.content = text;
    if (location.hash.slice(1) !== text) showInAddress(text, this.entry);
    this.entry = 'same';
  }

  /** The plan that the visitor asked to keep, once its answer is there. */
  private keepPlan(): void {
    if (this.keeps && this.problems.length === 0) {
      this.plans = [...this.plans, { text: textOf(this.state), report: this.fresh! }].slice(-mostPlans);
      this.remember();
    }
    this.keeps = false;
  }

  private async diagnose(text: string): Promise<void> {
    const request = this.problems.length === 0 ? (this.fresh?.request ?? null) : null;
    const answer = await this.planner.diagnose(text, request);
    if (answer) this.diagnosis = { text, answer };
    void this.draw();
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
      if (waiting === 'answer') void this.drawAround();
      else if (this.drawn) drawAnswer(this.context());
    }, slow);
    if (waiting === 'answer') this.formTimer = window.setTimeout(() => void this.draw(), formDelay);
  }

  /** The answer to the present input, and then what rests on it. */
  private async plan(): Promise<void> {
    const turn = ++this.turn;
    const request = requestOf(this.state, this.catalogue);
    this.wait('answer');
    const answer = 'code' in request ? { version: '', problems: [request] } : await this.planner.glance(request);
    if (turn !== this.turn) return;
    if (!answer) return this.remember(); // stopped
    this.problems = answer.problems;
    if (this.problems.length === 0) this.show(answer);
    if (!this.fresh) this.show(await this.firstAnswer());
    this.wait('rest');
    this.keepPlan();
    forgetReading();
    const isFirst = !this.drawn;
    if (isFirst) await this.takeOver();
    const drawn = isFirst ? this.drawGrounds() : this.draw();
    await painted();
    if (isFirst) this.planner.warmUp();
    if (turn !== this.turn) return;
    this.remember(); // after the answer: the browser takes its time for it
    if (this.problems.length === 0) return this.complete(request as PlanRequest, turn);
    await drawn;
    if (turn === this.turn) this.wait(null);
  }

  private show(answer: Report): void {
    this.fresh = answer;
    this.report = { ...this.report, ...answer };
  }

  private async complete(request: PlanRequest, turn: number): Promise<void> {
    const whole = await this.planner.plan(request);
    if (!whole || turn !== this.turn) return;
    this.fresh = this.report = whole;
    await this.drawAround();
    if (turn !== this.turn) return;
    const told = this.progress !== 'quiet';
    this.wait(null);
    if (told) drawAnswer(this.context());
  }

  /** A link may hold input that has no answer; the page then shows that of the first example. */
  private async firstAnswer(): Promise<Report> {
    return (await this.planner.kept(initialRequest(this.catalogue)))!;
  }

  private context(): Context {
    const { state, catalogue, problems, waiting, progress, actions, unread, plans, diagnosis, vendor, shared } = this;
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
      shared,
      diagnosis,
      vendor,
      actions,
      width: (name) => this.widths.get(name) ?? 640,
    };
  }

  /** Place by place, so that the browser can do something else in between. */
  private async takeOver(): Promise<void> {
    const isAsBuilt = this.container.inert && !document.documentElement.classList.contains('own-start');
    this.nameLanguage();
    const built = isAsBuilt ? firstContext(this.catalogue, this.report!, this.actions) : null;
    for (const draw of takeOver(this.context(), built)) {
      await breath();
      draw();
    }
    this.container.inert = false;
    document.documentElement.classList.remove('own-start');
    this.drawn = true;
  }

  /** Resolves when all is drawn, be it by a later call. */
  private draw(): Promise<void> {
    this.formIsDue = this.drawn;
    return this.drawAround();
  }

  /** The answer at once; when it can be seen the form, if that is due, and what the answer rests on, part by part. */
  private async drawAround(): Promise<void> {
    if (!this.drawn) return; // taking over the page draws it all
    drawAnswer(this.context());
    await this.drawGrounds();
  }

  private async drawGrounds(): Promise<void> {
    const drawing = (this.drawing = this.drawRest(++this.drawings));
    await drawing;
    if (drawing !== this.drawing) await this.drawing;
  }

  /** Another drawing, begun in between, does it all. */
  private async drawRest(drawing: number): Promise<void> {
    await painted();
    if (drawing !== this.drawings) return;
    if (this.formIsDue) this.drawForm();
    for (const draw of grounds(this.context())) {
      await breath();
      if (drawing !== this.drawings) return;
      draw();
      for (const drawPiece of pieces()) {
        await breath();
        drawPiece();
      }
    }
    this.observe();
  }

  private drawForm(): void {
    clearTimeout(this.formTimer);
    this.formIsDue = false;
    this.nameLanguage();
    drawForm(this.context());
  }

  private nameLanguage(): void {
    const { language } = this.state;
    if (document.documentElement.lang === language) return; // to set it styles all anew
    document.documentElement.lang = language;
    document.title = wordsIn(language).t('title');
  }

  /** Charts are drawn in pixels of the space they have. Told by the browser: to ask it lays out the page once more. */
  private observe(): void {
    for (const element of measuredIn(this.container)) this.observer.observe(element);
  }

  private measured(entries: ResizeObserverEntry[]): void {
    let changed = false;
    for (const { target, contentRect } of entries) {
      const [name, width] = [(target as HTMLElement).dataset['measure']!, Math.round(contentRect.width)];
      changed ||= width > 0 && width !== this.widths.get(name);
      if (width > 0) this.widths.set(name, width);
    }
    if (changed) void this.drawAround();
  }

  private async share(): Promise<void> {
    const link = linkTo(this.text());
    this.shared = { link, copied: await copyText(link) };
    void this.draw();
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
  if (!document.documentElement.classList.contains('own-start')) await painted(); // what the build drew
  const vendor = await findVendor();
  const [planner, problems] = await startPlanner(vendor.hardware);
  vendor.addHardwareProblems(problems);
  await breath();
  const saved = document.getElementById('saved-state') as HTMLMetaElement;
  await new Application(planner, vendor, document.getElementById('page')!, saved).start();
  hideDeadCopyLine();
  reportHeight();
}

void start();
