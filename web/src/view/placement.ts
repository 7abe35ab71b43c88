// Where the run stands: nodes and their GPUs, each with its place in the groups of the layout. Nodes that hold the same
// parts are drawn once, with their number.
import { html, nothing, svg, type TemplateResult } from 'lit-html';

import type { PlacedGpu, Placement, PlanRequest } from '../wire';
import type { Context } from './context';
import { behind } from './disclosure';
import { focused, onArrows, reading } from './reading';

const groups = ['dp', 'tp', 'pp', 'cp', 'ep'] as const;
type Group = (typeof groups)[number];

const degree = ({ layout }: PlanRequest, group: Group): number => layout?.[group] ?? 1;
const groupsOf = (request: PlanRequest): Group[] => groups.filter((group) => degree(request, group) > 1);

// Pixels.
const cell = { width: 70, gap: 6, line: 14 };
const node = { pad: 10, head: 24, gap: 12 };
const bracket = 16;

interface Box {
  gpu: PlacedGpu;
  x: number;
  y: number;
}

interface Frame {
  x: number;
  y: number;
  width: number;
  height: number;
  nodes: number;
  boxes: Box[];
}

/** Nodes beside each other where the page is wide enough, and below; within one, GPUs in rows. */
function framesOf({ kinds }: Placement, width: number, height: number): Frame[] {
  const step = cell.width + cell.gap;
  const widest = Math.max(...kinds.map(({ gpus }) => gpus.length)) * step - cell.gap + 2 * node.pad;
  const columns = Math.min(kinds.length, Math.max(1, Math.floor((width + node.gap) / (widest + node.gap))));
  const own = columns > 1 ? widest : width;
  const perRow = Math.max(1, Math.floor((own - 2 * node.pad + cell.gap) / step));
  const frames: Frame[] = [];
  for (let start = 0, y = 0; start < kinds.length; start += columns) {
    const row = kinds.slice(start, start + columns);
    const heights = row.map(({ gpus }) => node.head + Math.ceil(gpus.length / perRow) * (height + bracket) + node.pad);
    row.forEach(({ nodes, gpus }, column) => {
      const x = column * (own + node.gap);
      const boxes = gpus.map((gpu, index) => ({
        gpu,
        x: x + node.pad + (index % perRow) * step,
        y: y + node.head + Math.floor(index / perRow) * (height + bracket),
      }));
      frames.push({ x, y, width: own, height: heights[column]!, nodes, boxes });
    });
    y += Math.max(...heights) + node.gap;
  }
  return frames;
}

const lineOf = (gpu: PlacedGpu, group: Group): string => `${group.toUpperCase()} ${gpu[group] + 1}`;

function gpuText({ words, report }: Context, gpu: PlacedGpu): string {
  const places = groupsOf(report.request!).map((group) =>
    words.t('placement.of', {
      group: words.t(`placement.${group}`),
      place: gpu[group] + 1,
      all: degree(report.request!, group),
    }),
  );
  return words.t('placement.gpu', { rank: gpu.rank, places: places.join(', ') });
}

function gpuShape(context: Context, { gpu, x, y }: Box, height: number, chosen: boolean) {
  const lines = groupsOf(context.report.request!).map((group) => lineOf(gpu, group));
  return svg`<g class="placed stage-${gpu.pp % 4} ${chosen ? 'chosen' : ''}">
    <rect x=${x} y=${y} width=${cell.width} height=${height} rx="5"><title>${gpuText(context, gpu)}</title></rect>
    <text x=${x + 8} y=${y + 16} font-size="12" class="placed-rank">GPU ${gpu.rank}</text>
    ${lines.map((text, index) => svg`<text x=${x + 8} y=${y + 16 + (index + 1) * cell.line} font-size="12">${text}</text>`)}
  </g>`;
}

/** A bracket below neighbours that share every tensor. */
function tensorGroups({ report }: Context, { boxes }: Frame, height: number) {
  if (degree(report.request!, 'tp') === 1) return nothing;
  const sameGroup = (a: Box, b: Box) =>
    a.y === b.y && a.gpu.dp === b.gpu.dp && a.gpu.pp === b.gpu.pp && a.gpu.cp === b.gpu.cp;
  const starts = boxes.filter((box, index) => index === 0 || !sameGroup(boxes[index - 1]!, box));
  return starts.map((start) => {
    const end = boxes.filter((box) => sameGroup(start, box)).at(-1)!;
    const y = start.y + height + 4;
    return svg`<path class="placed-group" d="M${start.x + 1},${y}v4H${end.x + cell.width - 1}v-4" />`;
  });
}

function nodeShape(context: Context, frame: Frame, height: number, chosen: PlacedGpu | null) {
  const { words } = context;
  return svg`<g>
    <rect class="placed-node" x=${frame.x + 0.5} y=${frame.y + 0.5} width=${frame.width - 1} height=${frame.height} rx="8" />
    <text x=${frame.x + node.pad} y=${frame.y + 16} font-size="12">${words.t('placement.nodes', { count: frame.nodes })}</text>
    ${frame.boxes.map((box) => gpuShape(context, box, height, box.gpu === chosen))}
    ${tensorGroups(context, frame, height)}
  </g>`;
}

function drawing(context: Context, placement: Placement): TemplateResult {
  const { words, report } = context;
  const width = context.width('placement');
  const height = 24 + groupsOf(report.request!).length * cell.line;
  const frames = framesOf(placement, width, height);
  const gpus = placement.kinds.flatMap((kind) => kind.gpus);
  const at = focused('placement');
  const bottom = Math.max(...frames.map((frame) => frame.y + frame.height));
  return html`<div class="measured" data-measure="placement">
      <svg
        viewBox="0 0 ${width} ${bottom + 1}"
        width="100%"
        role="img"
        tabindex="0"
        aria-label=${words.t('placement.label')}
        aria-describedby="placement-text placement-reading"
        @keydown=${onArrows(context, 'placement', gpus.length, 0)}
      >
        ${frames.map((frame) => nodeShape(context, frame, height, at === null ? null : (gpus[at] ?? null)))}
      </svg>
    </div>
    ${reading('placement', at === null || !gpus[at] ? '' : gpuText(context, gpus[at]))}`;
}

function table({ words, report }: Context, { kinds }: Placement): TemplateResult {
  const shown = groupsOf(report.request!);
  return html`<table>
    <thead>
      <tr>
        <th scope="col">GPU</th>
        <th scope="col" class="figure">${words.t('placement.alike')}</th>
        ${shown.map((group) => html`<th scope="col" class="figure">${words.t(`placement.${group}`)}</th>`)}
      </tr>
    </thead>
    <tbody>
      ${kinds.flatMap(({ nodes, gpus }) =>
        gpus.map(
          (gpu) =>
            html`<tr>
              <th scope="row">${gpu.rank}</th>
              <td class="figure">${nodes}</td>
              ${shown.map((group) => html`<td class="figure">${gpu[group] + 1}</td>`)}
            </tr>`,
        ),
      )}
    </tbody>
  </table>`;
}

export function placementSection(context: Context): TemplateResult | typeof nothing {
  const { words, report } = context;
  const { placement, request } = report;
  if (!placement || groupsOf(request!).length === 0) return nothing;
  const { nodes, per_node: gpus } = placement;
  return html`<section class="panel" id="placement" aria-labelledby="placement-title" tabindex="-1">
    <h2 id="placement-title">${words.t('placement.title')}</h2>
    <p id="placement-text">
      ${words.t('placement.text', { count: nodes, gpus })}
      ${report.layout_chosen ? words.t(report.fit?.verdict === 'does_not_fit' ? 'placement.none' : 'placement.chosen') : nothing}
    </p>
    <dl class="figures placement-groups">
      ${groupsOf(request!).map(
        (group) =>
          html`<div>
            <dt>${words.t(`placement.${group}`)} (${group.toUpperCase()})</dt>
            <dd>${degree(request!, group)}<span class="note">${words.t(`placement.${group}.text`)}</span></dd>
          </div>`,
      )}
    </dl>
    ${drawing(context, placement)}
    ${behind(context, 'placement', words.t('placement.table'), words.t('placement.label'), () => table(context, placement))}
  </section>`;
}
