// The only file that knows WebAssembly. Everything else sees requests, reports and the catalogue of wire.ts.
import createVramplan from 'vramplan-core';

import type { Catalogue, DiagnosisAnswer, Notice, PlanRequest, Report } from './wire';

export interface Engine {
  plan(request: PlanRequest): Report;
  diagnose(text: string, request: PlanRequest | null): DiagnosisAnswer;
  catalogue(): Catalogue;
  /** From now on with a vendor's cards and systems (JSON); what is wrong with them, and then without. */
  extend(hardware: string): Notice[];
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
  let vendor = '';
  const catalogue = (hardware: string) =>
    JSON.parse(hardware ? core.catalogueWith(hardware) : core.catalogue()) as Catalogue & { problems?: Notice[] };
  return {
    plan: (request) => {
      const text = JSON.stringify(request);
      return JSON.parse(vendor ? core.planWith(text, vendor) : core.plan(text)) as Report;
    },
    diagnose: (text, request) =>
      JSON.parse(core.diagnose(JSON.stringify({ text, ...(request && { request }) }))) as DiagnosisAnswer,
    catalogue: () => catalogue(vendor),
    extend: (hardware) => {
      const { problems = [] } = catalogue(hardware);
      if (problems.length === 0) vendor = hardware;
      return problems;
    },
  };
}
