// The page's door to the planner. Two engines, each in a worker of its own: one for the answer, which is there within a
// frame, and one for everything that rests on it (suggestions, curves, matrix), which may take its time. Of requests that
// follow each other only the newest is answered, and both can be stopped.
import type { Call, Door, Reply } from './engine';
import { readFirst } from './first';
import type { Catalogue, DiagnosisAnswer, Notice, PlanRequest, Report } from './wire';

/** Where an engine runs. */
interface Place {
  send(call: Call): void;
  stop(): void;
}

type OnReply = (reply: Reply) => void;

/** The single file holds the engine's text in a block; the hosted page has it beside it. */
const engineText = (): string | null => document.getElementById('engine')?.textContent ?? null;

function workerAddress(): string {
  const text = engineText();
  return text === null ? 'engine.js' : URL.createObjectURL(new Blob([text], { type: 'text/javascript' }));
}

/** `onFail`: no worker starts here. */
function inWorker(onReply: OnReply, onFail: () => void): Place {
  const worker = new Worker(workerAddress());
  worker.onmessage = ({ data }) => onReply(data as Reply);
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
  private place: Place | null = null;
  private count = 0;
  private readonly open = new Map<number, Question>();
  private newestOpen: Question | null = null; // asked of the engine
  private newestNext: Question | null = null; // waits for it

  private static workers = true; // until one fails to start

  /** Starts the engine, if it is not there. */
  start(): Place {
    const answered = (reply: Reply) => this.answered(reply);
    try {
      this.place ??= Lane.workers ? inWorker(answered, () => this.moveIn()) : withinPage(answered);
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
  const glance = async (text: string, ask: (name: Door, ...texts: string[]) => Promise<string | null>) =>
    parsed<Report>(isKnown(text) ? known.report : await ask(...asked('glance', text)));
  const planner: Planner = {
    catalogue,
    glance: (request) => glance(JSON.stringify(request), (...call) => first.askNewest(...call)),
    plan: async (request) => parsed(await rest.askNewest(...asked('plan', JSON.stringify(request)))),
    kept: (request) => glance(JSON.stringify(request), (...call) => first.ask(...call)),
    diagnose: async (text, request) =>
      parsed(await rest.ask('diagnose', JSON.stringify({ text, ...(request && { request }) }))),
    warmUp: () => void first.ask(...asked('glance', known.request)),
    stop: () => {
      first.stop();
      rest.stop();
    },
  };
  return [planner, problems];
}
