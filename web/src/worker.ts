// An engine beside the page. Built into a script of its own, engine.js, which runs in a worker, or within the page where no
// worker starts. Texts in, texts out: planner.ts is its other end. A worker also hands out the module that it compiled.
import { askEngine, compileEngine, startEngine, type Door, type Engine } from './engine';

/** The module, gzipped and in base64; the build puts it here. */
declare const VRAMPLAN_WASM: string;

export interface Call {
  id: number;
  name: Door;
  texts: string[];
}

export interface Reply {
  id: number;
  text: string;
}

declare global {
  var vramplanCall: ((call: Call) => Promise<Reply>) | undefined; // within the page
}

const isWorker = typeof document === 'undefined';

async function start(): Promise<Engine> {
  const module = await compileEngine(VRAMPLAN_WASM);
  if (isWorker) postMessage(module);
  return startEngine(module);
}

const engine = start();

async function replyTo({ id, name, texts }: Call): Promise<Reply> {
  return { id, text: askEngine(await engine, name, ...texts) };
}

if (isWorker) onmessage = async ({ data }) => postMessage(await replyTo(data as Call));
else globalThis.vramplanCall = replyTo;
