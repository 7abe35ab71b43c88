// One bar for a GPU: what the run needs at its peak, against what the card can give.
import { scaleLinear, type ScaleLinear } from 'd3-scale';
import { html, nothing, svg, type TemplateResult } from 'lit-html';

import type { Component } from '../wire';
import type { Context } from './context';
import { colourClass, stacked, textWidth } from './palette';
import { focused, onArrows, reading } from './reading';
import { gpuName } from './words';

interface Segment {
  component: Component;
  group: string;
  start: number;
  end: number;
}

const top = 54;
const height = 60;

/** Components laid end to end; the pixels are the only arithmetic. */
function segmentsOf(context: Context): Segment[] {
  const { components, beyond_allocated: beyond } = context.report.memory!;
  let start = 0;
  const place = (component: Component, group: string): Segment => {
    const segment = { component, group, start, end: start + component.bytes };
    start = segment.end;
    return segment;
  };
  return [
    ...stacked(components).map((component) => place(component, component.group)),
    ...beyond.map((component) => place(component, 'beyond')),
  ];
}

type Scale = ScaleLinear<number, number>;

const segmentText = ({ words, format, report }: Context, { component }: Segment): string =>
  words.t('chart.segment', {
    name: words.t(`component.${component.id}`),
    bytes: format.bytes(component.bytes),
    share: format.percent(component.bytes / report.memory!.per_gpu.device.expected),
  });

function segmentShape(context: Context, scale: Scale, segment: Segment, chosen: boolean) {
  const { component, start, end } = segment;
  const width = Math.max(0, scale(end) - scale(start));
  const colour = colourClass(component.id);
  const title = segmentText(context, segment);
  return svg`<rect class="segment ${colour} ${chosen ? 'chosen' : ''}" x=${scale(start)} y=${top} width=${width} height=${height}>
    <title>${title}</title></rect>`;
}

/** Name and bytes where there is room, the bytes alone where there is less. */
function segmentLabel({ words, format }: Context, scale: Scale, { component, start, end }: Segment) {
  const fits = (text: string) => textWidth(text, 12) + 14 < scale(end) - scale(start);
  const [name, value] = [words.t(`component.${component.id}`), format.bytes(component.bytes)];
  const label = (text: string, y: number) =>
    svg`<text x=${scale(start) + 8} y=${y} class="segment-label" font-size="12">${text}</text>`;
  if (fits(name))
    return svg`<g class=${colourClass(component.id)}>${label(name, top + 26)}${label(value, top + 43)}</g>`;
  return fits(value) ? svg`<g class=${colourClass(component.id)}>${label(value, top + 35)}</g>` : nothing;
}

/** A bracket over each group: static, temporary, around the tensors. */
function groupShape(context: Context, scale: Scale, group: string, segments: Segment[]) {
  const own = segments.filter((segment) => segment.group === group);
  if (own.length === 0) return nothing;
  const [x, end] = [scale(own[0]!.start), scale(own.at(-1)!.end)];
  const text = context.words.t(`group.${group}`);
  return svg`<g class="bracket bracket-${group}">
    <path d="M${x + 0.5},${top - 4}v-6H${Math.max(x + 1, end - 1.5)}v6" />
    ${textWidth(text, 12) < end - x ? svg`<text x=${x} y=${top - 16} font-size="12">${text}</text>` : nothing}
  </g>`;
}

function limitShape(context: Context, scale: Scale, usable: number, width: number) {
  const x = Math.min(scale(usable), width - 1);
  const text = context.words.t('chart.usable', { usable: context.format.bytes(usable) });
  const fitsLeft = x > textWidth(text, 12);
  const end = scale(Math.max(usable, context.report.memory!.per_gpu.device.high));
  const line = `M${x},16V${top + height + 8}`;
  return svg`<g class="limit">
    ${end > x ? svg`<rect x=${x} y=${top} width=${end - x} height=${height} fill="url(#over)" />` : nothing}
    <path class="halo" d=${line} /><path class="mark" d=${line} />
    <text x=${fitsLeft ? x - 6 : x + 6} y="12" font-size="12" text-anchor=${fitsLeft ? 'end' : 'start'}>${text}</text>
  </g>`;
}

function intervalShape(context: Context, scale: Scale) {
  const { low, expected, high } = context.report.memory!.per_gpu.device;
  const y = top + height + 16;
  const text = context.words.t('chart.interval', { interval: context.format.interval({ low, expected, high }) });
  const right = scale(high) + 10 + textWidth(text, 12) < scale.range()[1]!;
  const left = scale(low) - 10 > textWidth(text, 12);
  const place = right ? scale(high) + 10 : scale(low) - 10;
  const label = svg`<text x=${place} y=${y + 4} font-size="12" text-anchor=${right ? 'start' : 'end'}>${text}</text>`;
  return svg`<g class="interval">
    ${right || left ? label : nothing}
    <path d="M${scale(low)},${y - 5}v10M${scale(low)},${y}H${scale(high)}M${scale(high)},${y - 5}v10" />
    <circle cx=${scale(expected)} cy=${y} r="4" />
  </g>`;
}

function axisShape(context: Context, scale: Scale, extent: number) {
  const { format } = context;
  const y = top + height + 30;
  const inUnit = scaleLinear().domain([0, format.inUnit(extent)]);
  const ticks = inUnit.ticks(Math.max(2, Math.floor(scale.range()[1]! / 110)));
  return svg`<g class="axis">${ticks.map((tick, index) => {
    const x = scale(format.fromUnit(tick));
    const text = index === ticks.length - 1 ? `${format.number(tick)} ${format.unit}` : format.number(tick);
    const anchor = index === 0 ? 'start' : x + textWidth(text, 12) / 2 > scale.range()[1]! ? 'end' : 'middle';
    return svg`<line x1=${x} x2=${x} y1=${y} y2=${y + 5} />
      <text x=${x} y=${y + 19} font-size="12" text-anchor=${anchor}>${text}</text>`;
  })}</g>`;
}

/** What is wide enough to be seen; the table has the rest. */
function legend(context: Context, scale: Scale, segments: Segment[]): TemplateResult {
  const { words, format } = context;
  const items = (group: string) =>
    segments.filter((segment) => segment.group === group && scale(segment.component.bytes) >= 1);
  return html`<div class="legend">
    ${(['static', 'temporary', 'beyond'] as const)
      .filter((group) => items(group).length > 0)
      .map(
        (group) =>
          html`<div>
            <h4>${words.t(`group.${group}`)}</h4>
            <ul>
              ${items(group).map(
                ({ component }) =>
                  html`<li>
                    <span class="swatch ${colourClass(component.id)}"></span
                    ><span>${words.t(`component.${component.id}`)}</span>
                    <span class="legend-value">${format.bytes(component.bytes)}</span>
                  </li>`,
              )}
            </ul>
          </div>`,
      )}
  </div>`;
}

/** One thin bar a stage of the pipeline, on the same scale; the one that needs the most is the one above. */
function stageBars(context: Context, scale: Scale, width: number): TemplateResult | typeof nothing {
  const { words, format, report } = context;
  const { stages } = report.memory!;
  if (stages.length < 2) return nothing;
  const most = Math.max(...stages.map((stage) => stage.device.expected));
  return html`<div class="stages">
    <h4>${words.t('stages.title')}</h4>
    <ul>
      ${stages.map(
        ({ stage, device }) =>
          html`<li class=${device.expected === most ? 'binding' : ''}>
            <span>${words.t('stages.stage', { number: stage + 1 })}</span>
            <span class="legend-value">${format.bytes(device.expected)}</span>
            <svg viewBox="0 0 ${width} 10" width="100%" aria-hidden="true">
              <rect class="card" x="0" y="0" width=${width} height="10" />
              <rect class="stage-bar" x="0" y="0" width=${scale(device.expected)} height="10" />
            </svg>
          </li>`,
      )}
    </ul>
  </div>`;
}

export function memoryBar(context: Context): TemplateResult {
  const { words, report, format } = context;
  const segments = segmentsOf(context);
  const usable = report.fit?.usable_bytes ?? 0;
  const { device } = report.memory!.per_gpu;
  const extent = Math.max(usable, device.high, segments.at(-1)?.end ?? 0) * (usable >= device.high ? 1 : 1.02);
  const width = context.width('memory-bar');
  const scale = scaleLinear().domain([0, extent]).range([0, width]);
  const seen = segments.filter((segment) => segment.component.bytes > 0);
  const at = focused('memory-bar');
  const chosen = at === null ? undefined : seen[at];
  const count = report.request?.hardware?.count ?? 1;
  const gpu = report.request?.hardware ? gpuName(context, report.request.hardware.gpu) : '';
  const usableText = usable > 0 ? format.bytes(usable) : words.t('unknown');
  const title = words.t(gpu ? 'chart.bar' : 'chart.bar_any', { count, gpu });
  return html`<figure class="memory-bar">
    <figcaption><h3>${title}</h3></figcaption>
    <div class="measured" data-measure="memory-bar">
      <svg
        viewBox="0 0 ${width} ${top + height + 54}"
        width="100%"
        role="img"
        tabindex="0"
        aria-label=${words.t('chart.bar_text', { need: format.bytes(device.expected), usable: usableText })}
        aria-describedby="memory-bar-reading"
        @keydown=${onArrows(context, 'memory-bar', seen.length, 0)}
      >
        <defs>
          <pattern id="over" width="8" height="8" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
            <rect class="over-stripe" width="3" height="8" />
          </pattern>
        </defs>
        <rect class="card" x="0" y=${top} width=${usable > 0 ? scale(usable) : width} height=${height} />
        ${segments.map((segment) => segmentShape(context, scale, segment, segment === chosen))}
        ${usable > 0 ? limitShape(context, scale, usable, width) : nothing}
        ${segments.map((segment) => segmentLabel(context, scale, segment))}
        ${['static', 'temporary', 'beyond'].map((group) => groupShape(context, scale, group, segments))}
        ${intervalShape(context, scale)}${axisShape(context, scale, extent)}
      </svg>
    </div>
    ${reading('memory-bar', chosen ? segmentText(context, chosen) : '')}${legend(context, scale, segments)}
    ${stageBars(context, scale, width)}
    <p class="note">${words.t('chart.units')}</p>
  </figure>`;
}
