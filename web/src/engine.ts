// The planner as WebAssembly: the only file that imports it. What is compiled once can run in a worker and in the page.
import createVramplan, { type Vramplan } from 'vramplan-core';

export type Engine = Vramplan;
export type Door = Exclude<keyof Vramplan, 'version'>;

function bytesOf(base64: string): Uint8Array<ArrayBuffer> {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at++) bytes[at] = text.charCodeAt(at);
  return bytes;
}

/** From the module's bytes, gzipped and in base64. */
export async function compileEngine(packed: string): Promise<WebAssembly.Module> {
  const plain = new Blob([bytesOf(packed)]).stream().pipeThrough(new DecompressionStream('gzip'));
  return WebAssembly.compile(await new Response(plain).arrayBuffer());
}

/** What it needs is in the module: nothing is fetched. */
export const startEngine = (module: WebAssembly.Module): Promise<Engine> =>
  createVramplan({
    instantiateWasm: (imports, received) => {
      const instance = new WebAssembly.Instance(module, imports);
      received(instance, module);
      return instance.exports;
    },
    locateFile: (name) => name,
  });

/** It answers everything; a module that breaks is told in the shape of any other problem. */
export function askEngine(engine: Engine, name: Door, ...texts: string[]): string {
  try {
    return (engine[name] as (...texts: string[]) => string)(...texts);
  } catch (error) {
    const problem = { code: 'internal', pointer: '', arguments: { what: String(error) } };
    return JSON.stringify({ version: '', problems: [problem] });
  }
}
