// When to go on: what is drawn has to get to the screen, and input has to be heard.

const handover = 10; // milliseconds: a frame on its way to the screen

/**
 * Until what was drawn can be seen, and a moment longer, for the screen to get it before more is drawn. A page out of sight
 * draws nothing, and has nothing to wait for.
 */
export function painted(): Promise<void> {
  if (document.hidden) return Promise.resolve();
  return new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve, handover)));
}

/** Lets the browser do what is waiting: input, a frame. */
export const breath = () => new Promise((resolve) => setTimeout(resolve));

/** Until there is nothing else to do, as far as the browser tells. */
export const idle = () =>
  new Promise((resolve) => ('requestIdleCallback' in window ? requestIdleCallback : setTimeout)(resolve));
