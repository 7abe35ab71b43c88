// One training step from left to right: what is live during each event, stacked by component, with the peak marked.
import { scaleLinear, type ScaleLinear } from 'd3-scale';
import { area, curveStepAfter, line } from 'd3-shape';
import { html, nothing, svg, type TemplateResult } from 'lit-html';

import type { TimelineEvent } from '../wire';
import type { Context } from './context';
import { behind } from './disclosure';
import { colourClass, stackingPlace, textWidth } from './palette';
import { piece } from './piece';
import { focused, onArrows, reading } from './reading';
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

/** Of steps that follow each other at the same height the first is enough; `end` closes the last. */
function steps(points: Point[], end: number): Point[] {
  const turns = points.filter(([, low, high], index) => {
    const [, lowBefore, highBefore] = points[index - 1] ?? [];
    return low !== lowBefore || high !== highBefore;
  });
  const [, low, high] = points.at(-1)!;
  return [...turns, [end, low, high]];
}

/** For each component the band it fills; each event is a step as wide as the others. */
function bandsOf(events: TimelineEvent[]): [id: string, points: Point[]][] {
  const ids = [...new Set(events.flatMap((event) => Object.keys(event.by_component)))].sort(
    (a, b) => stackingPlace(a) - stackingPlace(b),
  );
  const base = events.map(() => 0);
  return ids.map((id) => {
    const points = events.map((event, index): Point => {
      const low = base[index]!;
      return [index, low, (base[index] = low + (event.by_component[id] ?? 0))];
    });
    return [id, steps(points, events.length)];
  });
}

const isPeak = (context: Context) => {
  const { event, block } = context.report.memory!.peak;
  return (entry: TimelineEvent) => entry.event === event && entry.block === block;
};

type Scale = ScaleLinear<number, number>;

function axisShape({ format }: Context, inUnit: Scale, y: Scale, width: number) {
  return svg`<g class="axis">
    ${inUnit.ticks(4).map((tick) => {
      const place = y(format.fromUnit(tick));
      return svg`<line class="rule" x1=${margin.left} x2=${width - margin.right} y1=${place} y2=${place} />
        <text x=${margin.left - 8} y=${place + 4} font-size="12" text-anchor="end">${format.number(tick)}</text>`;
    })}
    <text x="0" y="14" font-size="12">${format.unit}</text>
  </g>`;
}

function outlineOf(events: TimelineEvent[], x: Scale, y: Scale): string | null {
  const points = events.map(({ live_bytes: live }, index): Point => [index, 0, live]);
  return line<Point>()
    .curve(curveStepAfter)
    .x(([place]) => x(place))
    .y(([, , live]) => y(live))(steps(points, events.length));
}

/** An invisible sheet over the events: the name and the bytes of the one that is pointed at. */
function probe(context: Context, events: TimelineEvent[], x: Scale) {
  const tell = (event: PointerEvent) => {
    const sheet = event.currentTarget as Element;
    const { left, width } = sheet.getBoundingClientRect();
    const at = events[Math.floor(((event.clientX - left) / width) * events.length)];
    if (at) sheet.querySelector('title')!.textContent = eventText(context, at);
  };
  return svg`<rect class="probe" x=${x(0)} y=${margin.top} width=${x(events.length) - x(0)} height=${plotHeight}
    @pointermove=${tell}><title></title></rect>`;
}

function phaseShape({ words }: Context, phase: string, start: number, end: number) {
  const text = words.t(`phase.${phase}`);
  const label = svg`<text x=${(start + end) / 2} y=${bottom + 22} font-size="12" text-anchor="middle">${text}</text>`;
  return svg`<g class="phase"><line x1=${start} x2=${start} y1=${margin.top} y2=${bottom + 10} />
    ${textWidth(text, 12) < end - start + 8 ? label : nothing}</g>`;
}

function peakShape({ words, format }: Context, bytes: number, x: number, y: number, width: number) {
  const text = words.t('timeline.peak', { bytes: format.bytes(bytes) });
  const half = textWidth(text, 13) / 2;
  const place = Math.min(width - half - 4, Math.max(half + margin.left, x));
  return svg`<g class="peak"><circle cx=${x} cy=${y} r="5" />
    <text x=${place} y=${Math.max(14, y - 12)} font-size="13" text-anchor="middle">${text}</text></g>`;
}

function chart(context: Context, events: TimelineEvent[]): TemplateResult {
  const { format, report } = context;
  const width = context.width('timeline');
  const most = Math.max(...events.map((event) => event.live_bytes), report.memory!.per_gpu.allocated.expected);
  const inUnit = scaleLinear([0, format.inUnit(most) * 1.04], [0, 1]).nice(4);
  const x = scaleLinear()
    .domain([0, events.length])
    .rangeRound([margin.left, width - margin.right]);
  const y = scaleLinear()
    .domain([0, format.fromUnit(inUnit.domain()[1]!)])
    .rangeRound([bottom, margin.top]);
  const band = area<Point>()
    .curve(curveStepAfter)
    .x(([place]) => x(place))
    .y0(([, low]) => y(low))
    .y1(([, , high]) => y(high));
  const peak = events.findIndex(isPeak(context));
  const middle = (index: number) => (x(index) + x(index + 1)) / 2;
  const top = events[peak]?.live_bytes ?? 0;
  const at = focused('timeline');
  return html`<svg
    viewBox="0 0 ${width} ${bottom + margin.bottom}"
    width="100%"
    role="img"
    tabindex="0"
    aria-label=${context.words.t('timeline.title')}
    aria-describedby="timeline-text timeline-reading"
    @keydown=${onArrows(context, 'timeline', events.length, peak)}
  >
    ${axisShape(context, inUnit, y, width)}
    ${bandsOf(events).map(([id, points]) => svg`<path class="band ${colourClass(id)}" d=${band(points)} />`)}
    <path class="outline" d=${outlineOf(events, x, y)} />
    ${phasesOf(events).map(({ phase, start, end }) => phaseShape(context, phase, x(start), x(end)))}
    ${probe(context, events, x)}
    ${at === null ? nothing : svg`<rect class="reading-mark" x=${x(at)} y=${margin.top} width=${x(at + 1) - x(at)} height=${plotHeight} />`}
    ${peak < 0 ? nothing : peakShape(context, top, middle(peak), y(top), width)}
  </svg>`;
}

/** What is alive in one event, largest parts first. */
function eventText(context: Context, { event, block, live_bytes: live, by_component: parts }: TimelineEvent): string {
  const { words, format } = context;
  const largest = Object.entries(parts)
    .sort(([, a], [, b]) => b - a)
    .slice(0, 3)
    .map(([id, bytes]) => `${words.t(`component.${id}`)} ${format.bytes(bytes)}`);
  return `${eventName(context, event, block)}: ${format.bytes(live)} (${largest.join(', ')})`;
}

function eventTable(context: Context, events: TimelineEvent[]): TemplateResult {
  const { words, format } = context;
  return html`<table>
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
  </table>`;
}

export function timeline(context: Context): TemplateResult | typeof nothing {
  const { words, report, format } = context;
  const events = report.timeline ?? [];
  if (events.length === 0) return nothing;
  const { peak, per_gpu: perGpu } = report.memory!;
  const at = focused('timeline');
  const busiest = eventName(context, peak.event, peak.block);
  return html`<section class="panel" id="timeline" aria-labelledby="timeline-title" tabindex="-1">
    <h2 id="timeline-title">${words.t('timeline.title')}</h2>
    <p id="timeline-text">
      ${words.t('timeline.text', { event: busiest, bytes: format.bytes(perGpu.allocated.expected) })}
    </p>
    <div class="measured" data-measure="timeline">${piece(() => chart(context, events))}</div>
    ${reading('timeline', at === null || !events[at] ? '' : eventText(context, events[at]))}
    ${behind(context, 'timeline', words.t('timeline.table'), words.t('timeline.table_label'), () => eventTable(context, events))}
  </section>`;
}
