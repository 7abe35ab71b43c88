// A static server for web/dist/site with the headers that a careful host sends. `node server.mjs` prints where it is;
// tests import serve().
import { readFileSync, statSync } from 'node:fs';
import { createServer } from 'node:http';
import { extname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';

const dist = fileURLToPath(new URL('dist/', import.meta.url));

export const headers = {
  'Content-Security-Policy':
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self' data:; connect-src 'self'",
  'X-Content-Type-Options': 'nosniff',
  'Referrer-Policy': 'no-referrer',
  'Cross-Origin-Opener-Policy': 'same-origin',
  'Cache-Control': 'no-cache',
};

const types = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.json': 'application/json',
  '.svg': 'image/svg+xml',
  '.png': 'image/png',
};

/** The file below `folder` that a request path names, or null. */
function find(folder, url) {
  let path;
  try {
    path = decodeURIComponent(new URL(url, 'http://localhost').pathname);
  } catch {
    return null;
  }
  if (path.includes('\0')) return null;
  const file = join(folder, normalize(path.endsWith('/') ? `${path}index.html` : path));
  return statSync(file, { throwIfNoEntry: false })?.isFile() ? file : null;
}

const packed = new Map(); // file -> its bytes, gzipped, and when they were written

/** Texts travel gzipped, as from any host. */
function bodyOf(file, takesGzip) {
  if (!takesGzip || !/\.(html|js|css|json|svg)$/.test(file)) return { bytes: readFileSync(file), encoding: {} };
  const { mtimeMs } = statSync(file);
  if (packed.get(file)?.mtimeMs !== mtimeMs) packed.set(file, { mtimeMs, bytes: gzipSync(readFileSync(file)) });
  return { bytes: packed.get(file).bytes, encoding: { 'Content-Encoding': 'gzip' } };
}

/** Serves `folder` on a free local port; resolves to its address and a function that stops it. */
export function serve(folder = join(dist, 'site')) {
  const server = createServer((request, response) => {
    const file = find(folder, request.url);
    const type = file ? (types[extname(file)] ?? 'application/octet-stream') : 'text/plain';
    const takesGzip = /\bgzip\b/.test(request.headers['accept-encoding'] ?? '');
    const { bytes, encoding } = file ? bodyOf(file, takesGzip) : { bytes: 'Not found', encoding: {} };
    response.writeHead(file ? 200 : 404, { ...headers, ...encoding, 'Content-Type': type });
    response.end(bytes);
  });
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    const close = () => {
      server.close();
      server.closeAllConnections(); // browsers keep some open
    };
    server.listen(0, '127.0.0.1', () => resolve({ url: `http://127.0.0.1:${server.address().port}/`, close }));
  });
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { url } = await serve();
  console.log(`Page:     ${url}`);
  console.log(`One file: ${join(dist, 'offline', 'vramplan.html')}`);
}
