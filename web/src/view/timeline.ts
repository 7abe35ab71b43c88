// One training step from left to right: what is live during each event, stacked by component, with the peak marked.
import { scaleLinear } from 'd3-scale';
import { area, line } from 'd3-shape';
import { html, nothing, svg, type TemplateResult } from 'lit-html';

import type { TimelineEvent } from '../wire';
import type { Context } from './context';
import { colourClass, stackingPlace, textWidth } from './palette';
import { eventName } from './words';

const margin = { top: 30, right: 4, bottom: 44, left: 44 };
const plotHeight = 220;
const bottom = margin.top + plotHeight;

type Point = [place: number, low: number, high: number];

const phases: Record<string, string> = { forward_head: 'loss', backward_head: 'loss', recompute_block: 'backward' };
const phaseOf = (event: string): string => phases[event] ?? event.split('_')[0]!;

/** Runs of events of one phase: load, forward, loss, backward, optimizer. */
function phasesOf(events: TimelineEvent[]): { phase: string; start: number; end: number }[] {
  const runs: { phase: string; start: number; end: number }[] = [];
  events.forEach(({ event }, index) => {
    const last = runs.at(-1);
    if (last?.phase === phaseOf(event)) last.end = index + 1;
    else runs.push({ phase: phaseOf(event), start: index, end: index + 1 });
  });
  return runs;
}

/** For each component the band it fills; each event is a step as wide as the others. */
function bandsOf(events: TimelineEvent[]): [id: string, points: Point[]][] {
  const ids = [...new Set(events.flatMap((event) => Object.keys(event.by_component)))].sort(
    (a, b) => stackingPlace(a) - stackingPlace(b),
  );
  const base = events.map(() => 0);
  return ids.map((id) => {
    const points = events.flatMap((event, index): Point[] => {
      const low = base[index]!;
      const high = (base[index] = low + (event.by_component[id] ?? 0));
      return [
        [index, low, high],
        [index + 1, low, high],
      ];
    });
    return [id, points];
  });
}

const isPeak = (context: Context) => {
  const { event, block } = context.report.memory!.peak;
  return (entry: TimelineEvent) => entry.event === event && entry.block === block;
};

function chart(context: Context, events: TimelineEvent[]): TemplateResult {
  const { words, format, report } = context;
  const width = context.width('timeline');
  const most = Math.max(...events.map((event) => event.live_bytes), report.memory!.per_gpu.allocated.expected);
  const x = scaleLinear()
    .domain([0, events.length])
    .range([margin.left, width - margin.right]);
  const inUnit = scaleLinear()
    .domain([0, format.inUnit(most) * 1.04])
    .nice(4);
  const y = scaleLinear()
    .domain([0, format.fromUnit(inUnit.domain()[1]!)])
    .range([bottom, margin.top]);
  const band = area<Point>()
    .x(([place]) => x(place))
    .y0(([, low]) => y(low))
    .y1(([, , high]) => y(high));
  const outline = line<[number, number]>()
    .x(([place]) => x(place))
    .y(([, bytes]) => y(bytes));
  const edge = events.flatMap((event, index): [number, number][] => [
    [index, event.live_bytes],
    [index + 1, event.live_bytes],
  ]);
  const peak = events.findIndex(isPeak(context));
  return html`<svg
    viewBox="0 0 ${width} ${bottom + margin.bottom}"
    width="100%"
    role="img"
    aria-labelledby="timeline-text"
  >
    <g class="axis">
      ${inUnit.ticks(4).map(
        (
          tick,
        ) => svg`<line class="rule" x1=${margin.left} x2=${width - margin.right} y1=${y(format.fromUnit(tick))} y2=${y(format.fromUnit(tick))} />
      <text x=${margin.left - 8} y=${y(format.fromUnit(tick)) + 4} font-size="12" text-anchor="end">${format.number(tick)}</text>`,
      )}
      <text x="0" y="14" font-size="12">${format.unit}</text>
    </g>
    ${bandsOf(events).map(([id, points]) => svg`<path class="band ${colourClass(id)}" d=${band(points)} />`)}
    <path class="outline" d=${outline(edge)} />
    ${phasesOf(events).map(({ phase, start, end }) => phaseShape(context, phase, x(start), x(end)))}
    ${events.map((event, index) => svg`<rect class="probe" x=${x(index)} y=${margin.top} width=${x(index + 1) - x(index)} height=${plotHeight}><title>${eventName(context, event.event, event.block)}: ${format.bytes(event.live_bytes)}</title></rect>`)}
    ${peak < 0 ? nothing : peakShape(words.t('timeline.peak', { bytes: format.bytes(events[peak]!.live_bytes) }), (x(peak) + x(peak + 1)) / 2, y(events[peak]!.live_bytes), width)}
  </svg>`;
}

function phaseShape({ words }: Context, phase: string, start: number, end: number) {
  const text = words.t(`phase.${phase}`);
  const fits = textWidth(text, 12) < end - start + 8;
  return svg`<g class="phase"><line x1=${start} x2=${start} y1=${margin.top} y2=${bottom + 10} />
    ${fits ? svg`<text x=${(start + end) / 2} y=${bottom + 22} font-size="12" text-anchor="middle">${text}</text>` : nothing}</g>`;
}

function peakShape(text: string, x: number, y: number, width: number) {
  const half = textWidth(text, 13) / 2;
  const place = Math.min(width - half - 4, Math.max(half + margin.left, x));
  return svg`<g class="peak"><circle cx=${x} cy=${y} r="5" /><text x=${place} y=${Math.max(14, y - 12)} font-size="13" text-anchor="middle">${text}</text></g>`;
}

function eventTable(context: Context, events: TimelineEvent[]): TemplateResult {
  const { words, format } = context;
  return html`<details class="as-table">
    <summary>${words.t('timeline.table')}</summary>
    <div class="scroll" tabindex="0" role="region" aria-label=${words.t('timeline.table_label')}>
      <table>
        <thead>
          <tr>
            <th scope="col">${words.t('timeline.event')}</th>
            <th scope="col" class="figure">${words.t('timeline.live', { unit: format.unit })}</th>
          </tr>
        </thead>
        <tbody>
          ${events.map(
            (event) =>
              html`<tr class=${isPeak(context)(event) ? 'is-peak' : ''}>
                <th scope="row">${eventName(context, event.event, event.block)}</th>
                <td class="figure">${format.column(event.live_bytes)}</td>
              </tr>`,
          )}
        </tbody>
      </table>
    </div>
  </details>`;
}

export function timeline(context: Context): TemplateResult | typeof nothing {
  const { words, report, format } = context;
  const events = report.timeline ?? [];
  if (events.length === 0) return nothing;
  const { peak, per_gpu: perGpu } = report.memory!;
  return html`<section class="panel" aria-labelledby="timeline-title">
    <h2 id="timeline-title">${words.t('timeline.title')}</h2>
    <p id="timeline-text">
      ${words.t('timeline.text', { event: eventName(context, peak.event, peak.block), bytes: format.bytes(perGpu.allocated.expected) })}
    </p>
    <div class="measured" data-measure="timeline">${chart(context, events)}</div>
    ${eventTable(context, events)}
  </section>`;
}
