// How the need grows with the micro-batch and with the sequence, with the card's limit and where memory runs out.
import { scaleLinear, scaleLog, type ScaleLinear, type ScaleLogarithmic } from 'd3-scale';
import { area, line } from 'd3-shape';
import { html, nothing, svg, type TemplateResult } from 'lit-html';

import type { Curve } from '../wire';
import type { Context } from './context';
import { behind } from './disclosure';
import { textWidth } from './palette';
import { piece } from './piece';
import { focused, onArrows, reading } from './reading';

type Name = 'micro_batch' | 'sequence_length';
type Point = Curve['points'][number];

const margin = { top: 34, right: 12, bottom: 46, left: 46 };
const plotHeight = 200;
const bottom = margin.top + plotHeight;

interface Scales {
  x: ScaleLogarithmic<number, number>;
  y: ScaleLinear<number, number>;
  inUnit: ScaleLinear<number, number>;
  width: number;
}

function scalesOf(context: Context, { points }: Curve, limit: number): Scales {
  const width = context.width('curve');
  const most = Math.max(limit, ...points.map((point) => point.device.high));
  const inUnit = scaleLinear([0, context.format.inUnit(most) * 1.05], [0, 1]).nice(4);
  return {
    width,
    inUnit,
    x: scaleLog([points[0]!.value, points.at(-1)!.value], [margin.left, width - margin.right]).base(2),
    y: scaleLinear([0, context.format.fromUnit(inUnit.domain()[1]!)], [bottom, margin.top]),
  };
}

const isPower = (value: number) => Math.log2(value) % 1 === 0;

/** Powers of two, as many as there is room for. */
function ticksOf({ words }: Context, points: Point[], { x }: Scales): number[] {
  const shown: number[] = [];
  for (const { value } of points.filter((point) => isPower(point.value))) {
    const room = textWidth(words.t('number', { value }), 12) + 16;
    const last = shown.at(-1);
    if (last === undefined || x(value) - x(last) >= room) shown.push(value);
  }
  return shown;
}

function axes(context: Context, name: Name, curve: Curve, scales: Scales) {
  const { words, format } = context;
  const { x, y, inUnit, width } = scales;
  return svg`<g class="axis">
    ${inUnit.ticks(4).map((tick) => {
      const place = y(format.fromUnit(tick));
      return svg`<line class="rule" x1=${margin.left} x2=${width - margin.right} y1=${place} y2=${place} />
        <text x=${margin.left - 8} y=${place + 4} font-size="12" text-anchor="end">${format.number(tick)}</text>`;
    })}
    <text x="0" y="14" font-size="12">${format.unit}</text>
    ${ticksOf(context, curve.points, scales).map(
      (value) => svg`<line x1=${x(value)} x2=${x(value)} y1=${bottom} y2=${bottom + 5} />
        <text x=${x(value)} y=${bottom + 19} font-size="12" text-anchor="middle">${words.t('number', { value })}</text>`,
    )}
    <text x=${width - margin.right} y=${bottom + 38} font-size="12" text-anchor="end">${words.t(`curve.${name}.axis`)}</text>
  </g>`;
}

const usable = ({ words, format }: Context, limit: number) => words.t('chart.usable', { usable: format.bytes(limit) });

function limitShape(context: Context, limit: number, { y, width }: Scales) {
  return svg`<g class="limit">
    <path class="mark" d="M${margin.left},${y(limit)}H${width - margin.right}" />
    <text x=${margin.left + 4} y=${y(limit) - 6} font-size="12">${usable(context, limit)}</text>
  </g>`;
}

/** Where memory runs out: a cross on the limit, with the value on a side where the curve is not. */
function endShape(context: Context, value: number, limit: number, { x, y, width }: Scales) {
  const text = context.words.t('curve.end', { value });
  const [left, top, room] = [x(value), y(limit), textWidth(text, 12)];
  const isRight = left + 10 + room <= width - margin.right;
  const clear = margin.left + 12 + textWidth(usable(context, limit), 12); // of the limit's own text
  const above = left - 8 - room > clear ? top - 10 : top - 22;
  return svg`<g class="curve-end">
    <path d="M${left - 5},${top - 5}l10,10m0,-10l-10,10" />
    <text x=${isRight ? left + 10 : left - 8} y=${isRight ? Math.min(bottom - 8, top + 18) : above}
      font-size="12" text-anchor=${isRight ? 'start' : 'end'}>${text}</text>
  </g>`;
}

function chart(context: Context, name: Name, curve: Curve, limit: number): TemplateResult {
  const { words } = context;
  const scales = scalesOf(context, curve, limit);
  const { x, y } = scales;
  const path = (of: (point: Point) => number) =>
    line<Point>()
      .x((point) => x(point.value))
      .y((point) => y(of(point)))(curve.points);
  const band = area<Point>()
    .x((point) => x(point.value))
    .y0((point) => y(point.device.low))
    .y1((point) => y(point.device.high))(curve.points);
  const now = curve.points.find((point) => point.value === curve.now);
  const at = focused(`curve-${name}`);
  const probe = at === null ? null : curve.points[at];
  return html`<svg
    viewBox="0 0 ${scales.width} ${bottom + margin.bottom}"
    width="100%"
    role="img"
    tabindex="0"
    aria-label=${words.t(`curve.${name}.label`)}
    aria-describedby="curve-${name}-text curve-${name}-reading"
    @keydown=${onArrows(context, `curve-${name}`, curve.points.length, curve.points.indexOf(now!))}
  >
    ${axes(context, name, curve, scales)}
    <path class="curve-band" d=${band} />
    <path class="curve-line" d=${path((point) => point.device.expected)} />
    ${limit > 0 ? limitShape(context, limit, scales) : nothing}
    ${limit > 0 && curve.runs_out_at !== null ? endShape(context, curve.runs_out_at, limit, scales) : nothing}
    ${now ? svg`<circle class="curve-now" cx=${x(now.value)} cy=${y(now.device.expected)} r="5" />` : nothing}
    ${probe ? svg`<circle class="curve-probe" cx=${x(probe.value)} cy=${y(probe.device.expected)} r="7" />` : nothing}
    ${curve.points.map(
      (point) => svg`<circle class="probe" cx=${x(point.value)} cy=${y(point.device.expected)} r="9">
        <title>${pointText(context, name, point)}</title></circle>`,
    )}
  </svg>`;
}

const pointText = ({ words, format }: Context, name: Name, { value, device }: Point): string =>
  words.t(`curve.${name}.point`, {
    value,
    need: format.bytes(device.expected),
    interval: format.interval(device),
  });

function sentence(
  { words }: Context,
  name: Name,
  { largest_that_fits: largest, runs_out_at: end }: Curve,
  limit: number,
) {
  if (limit === 0) return words.t(`curve.${name}.no_card`);
  const fits = largest === null ? words.t(`curve.${name}.none`) : words.t(`curve.${name}.largest`, { value: largest });
  return end === null ? fits : `${fits} ${words.t(`curve.${name}.ends`, { value: end })}`;
}

function table(context: Context, name: Name, { points, now }: Curve): TemplateResult {
  const { words, format } = context;
  return html`<table>
    <thead>
      <tr>
        <th scope="col">${words.t(`curve.${name}.axis`)}</th>
        <th scope="col" class="figure">${words.t('curve.expected', { unit: format.unit })}</th>
        <th scope="col" class="figure">${words.t('curve.low_high', { unit: format.unit })}</th>
      </tr>
    </thead>
    <tbody>
      ${points.map(
        ({ value, device }) =>
          html`<tr class=${value === now ? 'is-peak' : ''}>
            <th scope="row">${words.t('number', { value })}</th>
            <td class="figure">${format.column(device.expected)}</td>
            <td class="figure">${format.column(device.low)} – ${format.column(device.high)}</td>
          </tr>`,
      )}
    </tbody>
  </table>`;
}

function figure(context: Context, name: Name, curve: Curve, limit: number): TemplateResult {
  const { words } = context;
  const at = focused(`curve-${name}`);
  const point = at === null ? undefined : curve.points[at];
  return html`<figure class="curve">
    <figcaption>
      <h3>${words.t(`curve.${name}`)}</h3>
      <p id="curve-${name}-text">${sentence(context, name, curve, limit)}</p>
    </figcaption>
    <div class="measured" data-measure="curve">${piece(() => chart(context, name, curve, limit))}</div>
    ${reading(`curve-${name}`, point ? pointText(context, name, point) : '')}
    ${behind(context, `curve-${name}`, words.t('curve.table'), words.t(`curve.${name}.label`), () => table(context, name, curve))}
  </figure>`;
}

export function curves(context: Context): TemplateResult | typeof nothing {
  const { words, report } = context;
  if (!report.curves) return nothing;
  const { limit_bytes: limit, micro_batch: batch, sequence_length: length } = report.curves;
  return html`<section class="panel" id="curves" aria-labelledby="curves-title" tabindex="-1">
    <h2 id="curves-title">${words.t('curve.title')}</h2>
    <p>${words.t('curve.text')}</p>
    <div class="curves">
      ${figure(context, 'micro_batch', batch, limit)}${figure(context, 'sequence_length', length, limit)}
    </div>
  </section>`;
}
