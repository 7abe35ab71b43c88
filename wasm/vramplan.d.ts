/** The planner as a WebAssembly module. All texts are JSON but the version; web/src/wire.ts has their shapes. */
export interface Vramplan {
  /** A request in, a report out. Never throws on bad input: the report then holds `problems`. */
  plan(request: string): string;
  /** The same without timeline, suggestions, changes, curves and outlook: what a page shows first. */
  glance(request: string): string;
  catalogue(): string;
  /** The same with a vendor's cards and systems: JSON of {replace, gpus, systems}, problems in the answer when it is wrong. */
  planWith(request: string, vendor: string): string;
  glanceWith(request: string, vendor: string): string;
  catalogueWith(vendor: string): string;
  /** {text, request?} in, {diagnosis, changes} out: what filled a card, read from an out-of-memory text. */
  diagnose(document: string): string;
  version(): string;
}

export interface VramplanOptions {
  /** The bytes of vramplan.wasm, or else what makes an instance of them; nothing is fetched. */
  wasmBinary?: Uint8Array;
  instantiateWasm?: (
    imports: WebAssembly.Imports,
    received: (instance: WebAssembly.Instance, module: WebAssembly.Module) => void,
  ) => WebAssembly.Exports;
  /** Return the name unchanged. Needed although nothing is loaded: the default builds a URL, which fails in a blob. */
  locateFile(name: string): string;
}

export default function createVramplan(options: VramplanOptions): Promise<Vramplan>;
