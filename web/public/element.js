// <vram-planner lang="nl"></vram-planner>: the planner within a page of your own. One script tag, from wherever the
// planner stands:
//
//   <script src="https://example.org/planner/element.js" defer></script>
//   <vram-planner lang="nl"></vram-planner>
//
// The planner runs in a frame, so neither page's styles reach the other, and the frame grows with it. Attributes: `lang`
// (nl or en), `plan` (what follows the # in a link of the planner).
(() => {
  const base = new URL('.', document.currentScript.src);
  const loaded = new Map(); // windows of the frames, to their elements

  addEventListener('message', ({ source, origin, data }) => {
    const element = loaded.get(source);
    const height = data?.['vram-planner']?.height;
    if (element && origin === base.origin && Number.isFinite(height)) element.grow(height);
  });

  class VramPlanner extends HTMLElement {
    static observedAttributes = ['lang', 'plan'];
    #frame = null;

    connectedCallback() {
      if (!this.#frame) {
        this.#frame = document.createElement('iframe');
        this.#frame.title = 'VRAM-planner';
        // Set as properties with priority, so that the page's own rules for frames do not reach in.
        const sheet = new CSSStyleSheet();
        sheet.replaceSync(
          ':host { display: block !important } iframe { display: block; width: 100%; height: 900px; border: 0 }',
        );
        const root = this.attachShadow({ mode: 'closed' });
        root.adoptedStyleSheets = [sheet];
        root.append(this.#frame);
      }
      this.#load();
    }

    disconnectedCallback() {
      loaded.delete(this.#frame?.contentWindow);
    }

    attributeChangedCallback() {
      if (this.#frame?.isConnected) this.#load();
    }

    /** Called with the height that the planner tells. */
    grow(height) {
      this.#frame.style.height = `${height}px`;
    }

    #load() {
      const inputs = new URLSearchParams(this.getAttribute('plan') ?? 'v=1');
      if (this.lang) inputs.set('language', this.lang);
      this.#frame.src = `${new URL('index.html', base)}#${inputs}`;
      loaded.set(this.#frame.contentWindow, this);
    }
  }

  customElements.define('vram-planner', VramPlanner);
})();
