// Faults of a page's design as it is shown now: a list of texts.
(() => {
  const faults = [];
  const name = (it) => it.outerHTML.slice(0, 120);
  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth) {
    const wide = [...document.querySelectorAll("body *")].find((it) => it.getBoundingClientRect().right > root.clientWidth + 1);
    faults.push(`${root.scrollWidth} wide in ${root.clientWidth}: ${wide ? name(wide) : ""}`);
  }
  const isNamed = (it) =>
    it.getAttribute("aria-label") || it.textContent.trim() || [...(it.labels ?? [])].some((label) => label.textContent.trim());
  for (const it of document.querySelectorAll("a, button, select, textarea, input:not([type=hidden]), progress, [role=img], table")) {
    if (!isNamed(it)) faults.push(`no label: ${name(it)}`);
  }
  const parts = (colour) => {
    const numbers = colour.match(/[\d.]+/g).map(Number);
    return colour.startsWith("color(") ? [...numbers.slice(0, 3).map((it) => it * 255), numbers[3] ?? 1] : [...numbers, 1];
  };
  const light = (colour) => {
    const linear = colour.slice(0, 3).map((it) => it / 255).map((it) => (it <= 0.03928 ? it / 12.92 : ((it + 0.055) / 1.055) ** 2.4));
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const ground = (it) => {
    for (let at = it; at !== null; at = at.parentElement) {
      const colour = parts(getComputedStyle(at).backgroundColor);
      if (colour[3] > 0) return colour;
    }
    return [255, 255, 255, 1];
  };
  const seen = new Map();
  const judge = (it, colour) => {
    const key = colour + ground(it);
    if (!seen.has(key)) {
      const [one, other] = [light(parts(colour)), light(ground(it))];
      seen.set(key, (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05));
    }
    if (seen.get(key) < 4.5) faults.push(`contrast ${seen.get(key).toFixed(2)}: ${name(it)}`);
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const it = texts.currentNode.parentElement;
    if (texts.currentNode.data.trim() && it.closest("svg") === null) judge(it, getComputedStyle(it).color);
  }
  for (const it of document.querySelectorAll("input[placeholder]")) judge(it, getComputedStyle(it, "::placeholder").color);
  for (const it of document.querySelectorAll("[data-label]")) judge(it, getComputedStyle(it, "::before").color);
  return faults.slice(0, 10);
})()
