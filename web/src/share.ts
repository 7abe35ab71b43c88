// The link that restores everything, and the answer as files. Nothing leaves the machine.
import type { PlanRequest, Report } from './wire';

export const linkTo = (text: string): string => `${location.href.split('#')[0]}#${text}`;

/** Keeps the address in step with the inputs: a new entry in the history, or the present one rewritten. */
export function showInAddress(text: string, entry: 'new' | 'same'): void {
  try {
    if (entry === 'new') history.pushState(null, '', `#${text}`);
    else history.replaceState(null, '', `#${text}`);
  } catch {
    // A page inside a sandboxed frame has no address of its own; the link button still works.
  }
}

/** Whether the text is on the clipboard now; where a browser forbids it, the visitor copies from the field shown. */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

export function save(name: string, type: string, text: string): void {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

export const jsonOf = (request: PlanRequest, report: Report): string =>
  `${JSON.stringify({ request, report }, null, 2)}\n`;

const quoted = (value: string | number): string =>
  typeof value === 'number' || !/[",;\r\n]/.test(value) ? String(value) : `"${value.replaceAll('"', '""')}"`;

/** One table: what is alive at the peak, the three numbers, and the timeline. Whole bytes, so that any locale reads it. */
export function csvOf(report: Report): string {
  const { components, beyond_allocated: beyond, per_gpu: perGpu } = report.memory!;
  const rows: (string | number)[][] = [
    ['section', 'id', 'group', 'bytes', 'low', 'high', 'notation', 'certainty', 'source'],
    ...Object.entries(perGpu).map(([id, { low, expected, high }]) => ['per_gpu', id, '', expected, low, high]),
    ...components.map((row) => [
      'component',
      row.id,
      row.group,
      row.bytes,
      '',
      '',
      row.notation,
      row.certainty,
      row.source,
    ]),
    ...beyond.map((row) => ['beyond', row.id, '', row.bytes, '', '', row.notation, row.certainty, row.source]),
    ...(report.timeline ?? []).map(({ event, block, live_bytes: live }) => ['timeline', event, block ?? '', live]),
  ];
  const width = rows[0]!.length;
  return rows.map((row) => [...row, ...Array<string>(width - row.length).fill('')].map(quoted).join(',')).join('\r\n');
}

/** The page itself as one file that opens anywhere: the single file saves itself, the hosted page fetches it. */
export async function offlinePage(savedState: string, vendor: string): Promise<string | null> {
  if (document.getElementById('engine')) return `<!doctype html>\n${document.documentElement.outerHTML}`;
  try {
    const response = await fetch('vramplan.html');
    if (!response.ok) return null;
    const page = new DOMParser().parseFromString(await response.text(), 'text/html');
    page.getElementById('saved-state')?.setAttribute('content', savedState);
    const block = page.getElementById('vendor');
    if (block) block.textContent = vendor;
    return `<!doctype html>\n${page.documentElement.outerHTML}`;
  } catch {
    return null;
  }
}
