// What the purity tests share: the project's files and a C++ text without comments and literals.
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative, sep } from 'node:path';
import { fileURLToPath } from 'node:url';

export const root = join(dirname(fileURLToPath(import.meta.url)), '..', '..');

const notOurs = new Set(['node_modules', 'dist', '.toolchain', '.git']);

/** The files below a folder whose names match, as [{path, text}], paths relative to the root. None if it is absent. */
export function filesBelow(folder, pattern) {
  let entries;
  try {
    entries = readdirSync(join(root, folder), { withFileTypes: true });
  } catch {
    return [];
  }
  return entries.flatMap((entry) => {
    const path = `${folder}/${entry.name}`;
    if (entry.isDirectory()) return notOurs.has(entry.name) ? [] : filesBelow(path, pattern);
    return pattern.test(entry.name) ? [readSource(path)] : [];
  });
}

export function readSource(path) {
  return { path: relative(root, join(root, path)).split(sep).join('/'), text: readFileSync(join(root, path), 'utf8') };
}

export const cpp = /\.[ch]pp$/;

/** C++ with comments, preprocessor lines and the contents of literals blanked out. */
export function code(text) {
  return text
    .replace(
      /R"([^()\s\\]*)\([\s\S]*?\)\1"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+'|\/\/[^\n]*|\/\*[\s\S]*?\*\//g,
      (match, _delimiter, offset) => {
        if (match.startsWith('/')) return ' ';
        // 1'000'000: a separator of digits, no character.
        if (match.startsWith("'") && /[0-9a-fA-F]/.test(text[offset - 1] ?? '')) return match;
        return '""';
      },
    )
    .replace(/^[ \t]*#(?:\\\n|[^\n])*/gm, '');
}

/** [{name, quoted}] of each #include. */
export function includes(text) {
  const found = text.matchAll(/^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]/gm);
  return [...found].map(([, mark, name]) => ({ name, quoted: mark === '"' }));
}
