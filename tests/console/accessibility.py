"""What an audit of accessibility checks first, run by the browser in the page itself.

Names of controls, images and links; headings in order; headers of tables; ids that occur once; and
the contrast of every text with what is behind it.
"""

from __future__ import annotations

from playwright.sync_api import Page

CONTRAST_MIN = 4.5
LARGE_CONTRAST_MIN = 3.0
AUDIT = r"""
([contrastMin, largeMin]) => {
  const problems = [];
  const said = (e) => (e.getAttribute("aria-label") || e.textContent || e.title || "").trim();
  const where = (e) => e.outerHTML.slice(0, 120);
  const hidden = (e) => e.closest("[hidden],[aria-hidden=true]") || !e.getClientRects().length;
  if (!document.documentElement.lang) problems.push("the page has no language");
  if (!document.title.trim()) problems.push("the page has no title");
  if (document.querySelectorAll("main").length !== 1) problems.push("there is not one main");
  if (document.querySelectorAll("h1").length !== 1) problems.push("there is not one h1");
  let level = 0;
  for (const h of document.querySelectorAll("h1,h2,h3,h4")) {
    const now = Number(h.tagName[1]);
    if (now > level + 1) problems.push("a heading skips a level: " + where(h));
    level = now;
  }
  for (const e of document.querySelectorAll("input:not([type=hidden]),select,textarea"))
    if (!e.labels?.length && !e.getAttribute("aria-label")) problems.push("no label: " + where(e));
  for (const e of document.querySelectorAll("a,button,summary"))
    if (!hidden(e) && !said(e)) problems.push("no name: " + where(e));
  for (const e of document.querySelectorAll("svg,img"))
    if (!e.closest("[aria-hidden=true]") && !e.getAttribute("aria-label") && !e.alt)
      problems.push("an image without a name: " + where(e));
  for (const t of document.querySelectorAll("table")) {
    if (!t.caption) problems.push("a table without a caption: " + where(t));
    for (const th of t.querySelectorAll("th"))
      if (!th.scope || !said(th)) problems.push("a header without scope or text: " + where(th));
  }
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  for (const id of new Set(ids))
    if (ids.filter((i) => i === id).length > 1) problems.push("id twice: " + id);
  for (const e of document.querySelectorAll("[aria-labelledby],[aria-describedby]")) {
    const named = e.getAttribute("aria-labelledby") || e.getAttribute("aria-describedby");
    for (const id of named.split(" "))
      if (!document.getElementById(id)) problems.push("a reference to nothing: " + where(e));
  }

  const parse = (c) => {
    const n = c.match(/[\d.]+/g).map(Number);
    return n.length > 3 ? n : [...n, 1];
  };
  const light = ([r, g, b]) => {
    const f = (v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
    return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b);
  };
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c[3] === 1) return c;
    }
    return [255, 255, 255, 1];
  };
  let texts = 0;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const e = node.parentElement;
    if (!node.textContent.trim() || hidden(e)) continue;
    if (e.closest("script,style,.hidden,option,title")) continue;
    const style = getComputedStyle(e);
    if (style.visibility !== "visible") continue;
    texts += 1;
    const ink = parse(e instanceof SVGElement ? style.fill : style.color);
    const [a, b] = [light(ink), light(behind(e))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.6 && Number(style.fontWeight) >= 700);
    if (ratio < (large ? largeMin : contrastMin))
      problems.push(`contrast ${ratio.toFixed(2)} of "${node.textContent.trim().slice(0, 40)}"`);
  }
  return { problems: [...new Set(problems)], texts };
}
"""


def audit(page: Page) -> list[str]:
    """What is wrong with a page; it must have texts to look at."""
    found = page.evaluate(AUDIT, [CONTRAST_MIN, LARGE_CONTRAST_MIN])
    assert found["texts"] > 3, "there is hardly a text to check"
    problems: list[str] = found["problems"]
    return problems
