// The page inside an iframe of another site: it tells its height, and nothing else, so that the frame can grow with it.
export const embedded = (): boolean => window.parent !== window;

/** Posts {"vram-planner": {"height": …}} to the page around this one, now and whenever it changes. */
export function reportHeight(): void {
  if (!embedded()) return;
  document.documentElement.classList.add('embedded');
  let told = 0;
  const tell = () => {
    const height = Math.ceil(document.body.getBoundingClientRect().height);
    if (height === told) return;
    told = height;
    window.parent.postMessage({ 'vram-planner': { height } }, '*'); // a height is no secret
  };
  new ResizeObserver(tell).observe(document.body);
  tell();
}
