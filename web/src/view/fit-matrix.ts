// Which card takes which method: the smallest number of each on which the run fits.
import { html, nothing, type TemplateResult } from 'lit-html';

import type { FitMatrix, SystemGroup } from '../wire';
import type { Context } from './context';
import { piece } from './piece';
import { gpuName, valueName } from './words';

const groups: readonly SystemGroup[] = ['workstation', 'pcie_server', 'hgx', 'rack'];

type Row = FitMatrix['rows'][number];

function cellShape(context: Context, cell: Row['cells'][number]): TemplateResult {
  const { words } = context;
  if (!cell) return html`<td class="none">${words.t('matrix.none')}</td>`;
  return html`<td class="verdict-${cell.verdict}">
    ${words.t('matrix.count', { count: cell.count })}<span class="visually-hidden"
      >${words.t(`verdict.${cell.verdict}`)}</span
    >
  </td>`;
}

function row(context: Context, { gpu, cells }: Row): TemplateResult {
  const { report } = context;
  const now = report.request?.hardware?.gpu === gpu;
  return html`<tr class=${now ? 'is-peak' : ''}>
    <th scope="row">${gpuName(context, gpu)}</th>
    ${cells.map((cell) => cellShape(context, cell))}
  </tr>`;
}

function groupRows(context: Context, group: SystemGroup, rows: Row[]): TemplateResult | typeof nothing {
  const { words, catalogue } = context;
  const own = rows.filter(({ gpu }) => catalogue.gpus.find((card) => card.id === gpu)?.group === group);
  if (own.length === 0) return nothing;
  const columns = own[0]!.cells.length + 1;
  return html`<tbody>
    <tr class="group-row">
      <th scope="rowgroup" colspan=${columns}>${words.t(`group.${group}`)}</th>
    </tr>
    ${own.map((entry) => row(context, entry))}
  </tbody>`;
}

export function fitMatrix(context: Context): TemplateResult | typeof nothing {
  const { words, report } = context;
  const matrix = report.fit_matrix;
  if (!matrix || matrix.methods.length === 0) return nothing;
  return html`<section class="panel" id="matrix" aria-labelledby="matrix-title" tabindex="-1">
    <h2 id="matrix-title">${words.t('matrix.title')}</h2>
    <p>${words.t('matrix.text')}</p>
    <div class="scroll matrix-scroll" tabindex="0" role="region" aria-label=${words.t('matrix.table')}>
      <table class="matrix">
        <thead>
          <tr>
            <th scope="col">${words.t('field.hardware.gpu')}</th>
            ${matrix.methods.map(
              (method) => html`<th scope="col">${valueName(context, '/training/method', method)}</th>`,
            )}
          </tr>
        </thead>
        ${groups.map((group) => piece(() => groupRows(context, group, matrix.rows)))}
      </table>
    </div>
  </section>`;
}
