// What the table tests share: rows of a file, and the planner's answers to a list of requests.
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';

/** The rows of a file of this folder, one JSON object a line. */
export function readRows(name) {
  return readFileSync(new URL(name, import.meta.url), 'utf8')
    .trim()
    .split('\n')
    .map(JSON.parse);
}

// One report a request, in order; a report with problems is one that the planner refuses.
function ask(verb, requests, binary) {
  const input = requests.map((request) => JSON.stringify(request)).join('\n') + '\n';
  let output;
  try {
    output = execFileSync(binary, [verb, '--lines'], { input, maxBuffer: 1 << 30, encoding: 'utf8' });
  } catch (error) {
    if (error.status !== 1) throw error; // 1: some requests have problems
    output = error.stdout;
  }
  return output.trim().split('\n').map(JSON.parse);
}

/** Reports with all that lies around the answer. */
export const plan = (requests, binary = process.env.VRAMPLAN_BIN) => ask('plan', requests, binary);

/** Memory, fit and speed alone: quicker. */
export const answer = (requests, binary = process.env.VRAMPLAN_BIN) => ask('answer', requests, binary);

/** Whether a request is refused for nothing but values that the planner does not model yet. */
export function notSupported({ problems }) {
  return problems.length > 0 && problems.every(({ code }) => code === 'not_supported');
}

/** The values that a refused request stands or falls with: "framework litgpt, tp 8". */
export function reasons({ problems }) {
  return problems.map(({ arguments: args }) => `${args.field} ${args.value}`).join(', ');
}
