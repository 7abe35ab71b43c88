// "Explain my out-of-memory": a pasted message or table, what filled the card, and what to change.
import { scaleLinear } from 'd3-scale';
import { html, nothing, svg, type TemplateResult } from 'lit-html';
import { live } from 'lit-html/directives/live.js';

import type { CardPart, Diagnosis } from '../wire';
import type { Context } from './context';
import { changeItem } from './changes';
import { gpuName } from './words';

const height = 36;

const partName = ({ words }: Context, { id, name }: CardPart): string =>
  name ? words.t('part.process', { name }) : words.t(`part.${id}`);

function bar(context: Context, card: Diagnosis['cards'][number]): TemplateResult {
  const { words, format } = context;
  const width = context.width('diagnosis');
  const scale = scaleLinear([0, card.capacity_bytes], [0, width]);
  let start = 0;
  const shapes = card.parts.map((part) => {
    const x = scale(start);
    start += part.bytes;
    const title = `${partName(context, part)}: ${format.bytes(part.bytes)}`;
    return svg`<rect class="segment part-${part.id}" x=${x} y="0" width=${Math.max(0, scale(start) - x)} height=${height}>
      <title>${title}</title></rect>`;
  });
  return html`<div class="measured" data-measure="diagnosis">
    <svg
      viewBox="0 0 ${width} ${height}"
      width="100%"
      role="img"
      aria-label=${words.t('diagnose.bar', { index: card.index, capacity: format.bytes(card.capacity_bytes) })}
    >
      ${shapes}
    </svg>
  </div>`;
}

function cardShape(context: Context, card: Diagnosis['cards'][number]): TemplateResult {
  const { words, format } = context;
  const names = card.gpus.map((id) => gpuName(context, id)).join(', ');
  return html`<div class="diagnosed-card">
    <h3>${words.t('diagnose.card', { index: card.index, capacity: format.bytes(card.capacity_bytes) })}</h3>
    ${names ? html`<p class="note">${words.t('diagnose.gpus', { names })}</p>` : nothing} ${bar(context, card)}
    <table>
      <tbody>
        ${card.parts.map(
          (part) =>
            html`<tr>
              <th scope="row"><span class="swatch part-${part.id}"></span> ${partName(context, part)}</th>
              <td class="figure">${format.bytes(part.bytes)}</td>
            </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

function outcome(context: Context): TemplateResult | typeof nothing {
  const { words, format, diagnosis } = context;
  if (!diagnosis || diagnosis.text.trim() === '') return nothing;
  const { answer } = diagnosis;
  if (!answer.diagnosis) return html`<p class="field-problem">${words.t('diagnose.unknown')}</p>`;
  const { cards, findings, requested_bytes: requested, shortage_bytes: shortage } = answer.diagnosis;
  const changes = answer.changes ?? [];
  const figures = { requested: format.bytes(requested), shortage: format.bytes(shortage) };
  return html`<div class="diagnosis">
    ${requested > 0 ? html`<p class="diagnosis-lead">${words.t('diagnose.asked', figures)}</p>` : nothing}
    <ul class="findings">
      ${findings.map((finding) => html`<li>${words.t(`finding.${finding}`, figures)}</li>`)}
    </ul>
    ${cards.map((card) => cardShape(context, card))}
    ${
      requested > 0
        ? html`<h3>${words.t('diagnose.changes')}</h3>
            <p class="note">
              ${words.t(changes.length > 0 ? 'diagnose.changes_text' : 'diagnose.no_changes', figures)}
            </p>
            <ul class="changes">
              ${changes.map((change) => changeItem(context, change))}
            </ul>`
        : nothing
    }
  </div>`;
}

export function diagnose(context: Context): TemplateResult {
  const { words, actions, diagnosis } = context;
  const text = diagnosis?.text ?? '';
  return html`<section class="panel" id="diagnose" aria-labelledby="diagnose-title" tabindex="-1">
    <h2 id="diagnose-title">${words.t('diagnose.title')}</h2>
    <p id="diagnose-text">${words.t('diagnose.text')}</p>
    <label class="visually-hidden" for="diagnose-input">${words.t('diagnose.label')}</label>
    <textarea
      id="diagnose-input"
      rows="5"
      spellcheck="false"
      autocomplete="off"
      aria-describedby="diagnose-text"
      placeholder="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate …"
      .value=${live(text)}
      @input=${(event: Event) => actions.diagnose((event.target as HTMLTextAreaElement).value)}
    ></textarea>
    <div role="status">${outcome(context)}</div>
  </section>`;
}
