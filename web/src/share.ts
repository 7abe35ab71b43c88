// The link that restores everything, and the report as a file. Nothing leaves the machine.
import type { PlanRequest, Report } from './wire';

export const linkTo = (text: string): string => `${location.href.split('#')[0]}#${text}`;

/** Keeps the address in step with the inputs, without a new entry in the history. */
export function showInAddress(text: string): void {
  try {
    history.replaceState(null, '', `#${text}`);
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

export function download(name: string, request: PlanRequest, report: Report): void {
  const blob = new Blob([`${JSON.stringify({ request, report }, null, 2)}\n`], { type: 'application/json' });
  const link = document.createElement('a');
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
