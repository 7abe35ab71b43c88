/** The planner as a WebAssembly module. All texts are JSON but the version; web/src/wire.ts has their shapes. */
export interface Vramplan {
  /** A request in, a report out. Never throws on bad input: the report then holds `problems`. */
  plan(request: string): string;
  catalogue(): string;
  version(): string;
}

export interface VramplanOptions {
  /** The bytes of vramplan.wasm: the page carries them, nothing is fetched. */
  wasmBinary: Uint8Array;
  /** Return the name unchanged. Needed although nothing is loaded: the default builds a URL, which fails in a blob. */
  locateFile(name: string): string;
}

export default function createVramplan(options: VramplanOptions): Promise<Vramplan>;
