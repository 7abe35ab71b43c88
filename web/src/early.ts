// Runs before the page's text is read: what stands there answers the request that every page starts with. Whoever comes with
// another one, or to a vendor's copy, waits for the planner, and sees no number until then.
const vendor = document.getElementById('vendor');
const own = [
  location.hash.slice(1),
  document.getElementById('saved-state')?.getAttribute('content'),
  vendor?.dataset['src'],
  vendor?.textContent?.trim(),
];
if (own.some(Boolean)) document.documentElement.classList.add('own-start');
