// A part that takes long is drawn in pieces at first, each in a turn of its own, so that the page answers in between.
import { nothing } from 'lit-html';
import { AsyncDirective } from 'lit-html/async-directive.js';
import { directive } from 'lit-html/directive.js';

type Content = () => unknown;

const waiting: (() => void)[] = [];

class Piece extends AsyncDirective {
  private content: Content = () => nothing;
  private state: 'new' | 'waits' | 'drawn' = 'new';

  render(content: Content): unknown {
    this.content = content;
    if (this.state === 'drawn') return content();
    if (this.state === 'new') waiting.push(() => this.drawIt());
    this.state = 'waits';
    return nothing;
  }

  private drawIt(): void {
    this.state = 'drawn';
    if (this.isConnected) this.setValue(this.content());
  }
}

export const piece = directive(Piece);

/** Draws the pieces that wait, one by one. */
export function* pieces(): Generator<() => void> {
  while (waiting.length > 0) yield waiting.shift()!;
}
