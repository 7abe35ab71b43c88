// The planner itself, beside the page: the only file that knows WebAssembly. Built into a script of its own, which runs in
// a worker, or within the page where no worker starts. Texts in, texts out: planner.ts is its other end.
import createVramplan, { type Vramplan } from 'vramplan-core';

/** The module, gzipped and in base64; the build puts it here. */
declare const VRAMPLAN_WASM: string;

export type Door = Exclude<keyof Vramplan, 'version'>;

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

function bytesOf(base64: string): Uint8Array<ArrayBuffer> {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at++) bytes[at] = text.charCodeAt(at);
  return bytes;
}

async function start(): Promise<Vramplan> {
  const plain = new Blob([bytesOf(VRAMPLAN_WASM)]).stream().pipeThrough(new DecompressionStream('gzip'));
  const wasmBinary = new Uint8Array(await new Response(plain).arrayBuffer());
  return createVramplan({ wasmBinary, locateFile: (name) => name });
}

const core = start();

/** The core answers everything; a module that breaks is told in the shape of any other problem. */
async function replyTo({ id, name, texts }: Call): Promise<Reply> {
  try {
    const door = (await core)[name] as (...texts: string[]) => string;
    return { id, text: door(...texts) };
  } catch (error) {
    const problem = { code: 'internal', pointer: '', arguments: { what: String(error) } };
    return { id, text: JSON.stringify({ version: '', problems: [problem] }) };
  }
}

if (typeof document === 'undefined') onmessage = async ({ data }) => postMessage(await replyTo(data as Call));
else globalThis.vramplanCall = replyTo;
