// Where in a JSON text a value stands, so that what is wrong with a file can be told by its line.

export const lineAt = (text: string, index: number): number => text.slice(0, index).split('\n').length;

const tokens = () => /"(?:[^"\\\n]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+|"/g;
const literal = /^(true|false|null|-?\d+(\.\d+)?(e[+-]?\d+)?|"[^]+|"")$/i;

/** What may follow what, in JSON; a value is written v. */
const follows: Record<string, string> = {
  '': '{[v',
  '{': 'v}',
  '[': '{[v]',
  ',': '{[v',
  ':': '{[v',
  v: ',:}]',
  '}': ',}]',
  ']': ',}]',
};

/** The line at which a text stops being JSON. (The browsers tell it each in words of their own, or not at all.) */
export function brokenLine(text: string): number {
  let before = '';
  for (const { 0: word, index } of text.matchAll(tokens())) {
    const kind = /^[{}[\],:]$/.test(word) ? word : 'v';
    if ((kind === 'v' && (word === '"' || !literal.test(word))) || !follows[before]!.includes(kind))
      return lineAt(text, index);
    before = kind;
  }
  return lineAt(text, text.trimEnd().length);
}

/** The line on which the value at a JSON Pointer, or the nearest value around it, begins. The text is valid JSON. */
export function lineOf(text: string, pointer: string): number {
  const places = placesOf(text);
  for (let at = pointer; at !== ''; at = at.slice(0, at.lastIndexOf('/'))) {
    const place = places.get(at);
    if (place !== undefined) return lineAt(text, place);
  }
  return 1;
}

/** The index at which each value begins, by JSON Pointer; of a member, the index of its name. */
function placesOf(text: string): Map<string, number> {
  const places = new Map<string, number>();
  const token = tokens();
  const stack: { pointer: string; index: number | null; name: string }[] = []; // index: of an array's element
  let named: number | null = null; // where the name of the coming value stands
  for (let match = token.exec(text); match; match = token.exec(text)) {
    const [word] = match;
    const inside = stack.at(-1);
    const isName = inside?.index === null && word.startsWith('"') && /^\s*:/.test(text.slice(token.lastIndex));
    if (isName) {
      inside.name = (JSON.parse(word) as string).replaceAll('~', '~0').replaceAll('/', '~1');
      named = match.index;
    } else if (word === '}' || word === ']') {
      stack.pop();
    } else if (word === ',') {
      if (inside && inside.index !== null) inside.index += 1;
    } else if (word !== ':') {
      const pointer = inside ? `${inside.pointer}/${inside.index ?? inside.name}` : '';
      places.set(pointer, named ?? match.index);
      named = null;
      if (word === '{' || word === '[') stack.push({ pointer, index: word === '[' ? 0 : null, name: '' });
    }
  }
  return places;
}
