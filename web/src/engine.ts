// The only file that knows WebAssembly. Everything else sees requests, reports and the catalogue of wire.ts.
import createVramplan from 'vramplan-core';

import type { Catalogue, PlanRequest, Report } from './wire';

export interface Engine {
  plan(request: PlanRequest): Report;
  catalogue(): Catalogue;
  version(): string;
}

declare global {
  // Set by core-wasm.js beside the hosted page; the single file holds the same text in a data block.
  var __vramplanWasm: string | undefined;
}

/** The module's bytes, which the page carries gzipped. */
async function wasmBytes(): Promise<Uint8Array> {
  const text = globalThis.__vramplanWasm ?? document.getElementById('core-wasm')?.textContent ?? '';
  const packed = Uint8Array.from(atob(text.trim()), (character) => character.charCodeAt(0));
  const plain = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
  return new Uint8Array(await new Response(plain).arrayBuffer());
}

export async function startEngine(): Promise<Engine> {
  const core = await createVramplan({ wasmBinary: await wasmBytes(), locateFile: (name) => name });
  return {
    plan: (request) => JSON.parse(core.plan(JSON.stringify(request))) as Report,
    catalogue: () => JSON.parse(core.catalogue()) as Catalogue,
    version: () => core.version(),
  };
}
