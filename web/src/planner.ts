// The page's door to the planner. Two engines, each in a worker of its own: one for the answer, and one for everything that
// rests on it (suggestions, curves, matrix), which may take its time. Of requests that follow each other only the newest is
// answered, and both can be stopped. A third stands within the page, once there is a visitor: its answer is there before the
// next frame is drawn, which a worker's is not.
import { askEngine, startEngine, type Door, type Engine } from './engine';
import { readFirst } from './first';
import { idle } from './pace';
import type { Call, Reply } from './worker';
import type { Catalogue, DiagnosisAnswer, Notice, PlanRequest, Report } from './wire';

/** Where an engine runs. */
interface Place {
  send(call: Call): void;
  stop(): void;
}

type OnReply = (reply: Reply) => void;

const longest = 40; // milliseconds that an answer within the page may take; the next one is asked of the worker otherwise

/** The single file holds the engine's text in a block; the hosted page has it beside it. */
const engineText = (): string | null => document.getElementById('engine')?.textContent ?? null;

function workerAddress(): string {
  const text = engineText();
  return text === null ? 'engine.js' : URL.createObjectURL(new Blob([text], { type: 'text/javascript' }));
}

/** `onFail`: no worker starts here. */
function inWorker(onReply: OnReply, onModule: (module: WebAssembly.Module) => void, onFail: () => void): Place {
  const worker = new Worker(workerAddress());
  worker.onmessage = ({ data }) => (data instanceof WebAssembly.Module ? onModule(data) : onReply(data as Reply));
  worker.onerror = onFail;
  return { send: (call) => worker.postMessage(call), stop: () => worker.terminate() };
}

let within: Promise<void> | null = null;

function loadWithin(): Promise<void> {
  return new Promise((resolve, reject) => {
    const script = document.createElement('script');
    script.onload = () => resolve();
    script.onerror = reject;
    const text = engineText();
    if (text === null) script.src = 'engine.js';
    else script.text = text;
    document.head.append(script);
    if (text !== null) resolve();
    script.remove();
  });
}

function withinPage(onReply: OnReply): Place {
  let stopped = false;
  return {
    send: async (call) => {
      await (within ??= loadWithin());
      const reply = await globalThis.vramplanCall!(call);
      if (!stopped) onReply(reply);
    },
    stop: () => (stopped = true),
  };
}

interface Question {
  call: Call;
  resolve: (text: string | null) => void;
}

/** One engine, its questions in order. */
class Lane {
  module: WebAssembly.Module | null = null; // as its worker compiled it
  private place: Place | null = null;
  private count = 0;
  private readonly open = new Map<number, Question>();
  private newestOpen: Question | null = null; // asked of the engine
  private newestNext: Question | null = null; // waits for it

  private static workers = true; // until one fails to start

  /** Starts the engine, if it is not there. */
  start(): Place {
    const answered = (reply: Reply) => this.answered(reply);
    const compiled = (module: WebAssembly.Module) => void (this.module = module);
    try {
      this.place ??= Lane.workers ? inWorker(answered, compiled, () => this.moveIn()) : withinPage(answered);
    } catch {
      Lane.workers = false;
      this.place = withinPage(answered);
    }
    return this.place;
  }

  /** The worker does not start, or broke: what was asked of it is asked within the page. */
  private moveIn(): void {
    Lane.workers = false;
    this.place?.stop();
    this.place = null;
    for (const { call } of this.open.values()) this.start().send(call);
  }

  ask(name: Door, ...texts: string[]): Promise<string | null> {
    return new Promise((resolve) => this.send({ call: { id: ++this.count, name, texts }, resolve }));
  }

  /** Answers the newest of the questions asked this way; null to those that it overtook. */
  askNewest(name: Door, ...texts: string[]): Promise<string | null> {
    return new Promise((resolve) => {
      const question = { call: { id: ++this.count, name, texts }, resolve };
      this.newestNext?.resolve(null);
      this.newestNext = this.newestOpen ? question : null;
      if (!this.newestOpen) this.send((this.newestOpen = question));
    });
  }

  private send(question: Question): void {
    this.open.set(question.call.id, question);
    this.start().send(question.call);
  }

  private answered({ id, text }: Reply): void {
    const question = this.open.get(id);
    if (!question) return;
    this.open.delete(id);
    if (question !== this.newestOpen) return question.resolve(text);
    const next = this.newestNext;
    [this.newestOpen, this.newestNext] = [next, null];
    question.resolve(next ? null : text);
    if (next) this.send(next);
  }

  /** Ends what runs; the engine starts again with the next question. */
  stop(): void {
    this.place?.stop();
    this.place = null;
    const questions = [...this.open.values(), ...(this.newestNext ? [this.newestNext] : [])];
    this.open.clear();
    this.newestOpen = this.newestNext = null;
    for (const { resolve } of questions) resolve(null);
  }
}

/** An engine within the page; until it has come, and while answers take their time, its lane's worker answers. */
class Near {
  private engine: Engine | null = null;
  private coming: Promise<void> | null = null;
  private took = 0; // the last answer, milliseconds

  constructor(
    private readonly lane: Lane,
    private readonly warmUp: [Door, ...string[]],
  ) {}

  come(): void {
    this.coming ??= this.start();
  }

  /** Module and compiled code are the worker's: what that has run before is fast here as well. */
  private async start(): Promise<void> {
    await this.lane.ask(...this.warmUp);
    if (!this.lane.module) return; // there is no worker
    await idle();
    const engine = await startEngine(this.lane.module);
    await idle();
    askEngine(engine, ...this.warmUp); // reads its catalogue
    this.engine = engine;
  }

  async askNewest(name: Door, ...texts: string[]): Promise<string | null> {
    const start = performance.now();
    const isHere = this.engine && this.took <= longest;
    const asked = isHere ? askEngine(this.engine!, name, ...texts) : this.lane.askNewest(name, ...texts);
    this.come(); // behind the question, which it would hold up
    const answer = await asked;
    this.took = performance.now() - start;
    return answer;
  }
}

export interface Planner {
  readonly catalogue: Catalogue;
  /** What is in view first: the report without what may take its time. Null: a newer request overtook it, or stopped. */
  glance(request: PlanRequest): Promise<Report | null>;
  /** The whole report; null as above. */
  plan(request: PlanRequest): Promise<Report | null>;
  /** An answer that nothing overtakes. */
  kept(request: PlanRequest): Promise<Report | null>;
  diagnose(text: string, request: PlanRequest | null): Promise<DiagnosisAnswer | null>;
  /** Starts the engine, which takes a moment, before there is a question for it. */
  warmUp(): void;
  /** Starts the one within the page, which blocks it for a moment: not before there is a visitor. */
  comeNear(): void;
  stop(): void;
}

const parsed = <T>(text: string | null): T | null => (text === null ? null : (JSON.parse(text) as T));

/** `hardware`: a vendor's cards and systems (JSON), left out when there is a problem with them. */
export async function startPlanner(hardware: string): Promise<[Planner, Notice[]]> {
  const [first, rest] = [new Lane(), new Lane()];
  const known = readFirst();
  type Own = Catalogue & { problems?: Notice[] };
  const own = hardware ? parsed<Own>(await first.ask('catalogueWith', hardware))! : null;
  const problems = own?.problems ?? [];
  const vendor = own && problems.length === 0 ? hardware : '';
  const catalogue = vendor ? own! : known.catalogue;
  const asked = (name: 'glance' | 'plan', text: string): [Door, ...string[]] =>
    vendor ? [`${name}With`, text, vendor] : [name, text];
  const isKnown = (text: string) => !vendor && text === known.request;
  const warmUp = asked('glance', known.request);
  const near = new Near(first, warmUp);
  const glance = async (text: string, ask: (name: Door, ...texts: string[]) => Promise<string | null>) =>
    parsed<Report>(isKnown(text) ? known.report : await ask(...asked('glance', text)));
  const planner: Planner = {
    catalogue,
    glance: (request) => glance(JSON.stringify(request), (...call) => near.askNewest(...call)),
    plan: async (request) => parsed(await rest.askNewest(...asked('plan', JSON.stringify(request)))),
    kept: (request) => glance(JSON.stringify(request), (...call) => first.ask(...call)),
    diagnose: async (text, request) =>
      parsed(await rest.ask('diagnose', JSON.stringify({ text, ...(request && { request }) }))),
    warmUp: () => void first.ask(...warmUp),
    comeNear: () => near.come(),
    stop: () => {
      first.stop();
      rest.stop();
    },
  };
  return [planner, problems];
}
