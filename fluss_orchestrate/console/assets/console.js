// The console without this script is complete: it adds the theme, a filter, and a page that follows.
"use strict";
(() => {
  const root = document.documentElement;
  const stored = () => { try { return localStorage.getItem("fluss-theme"); } catch { return null; } };
  if (stored()) root.dataset.theme = stored();

  const isDark = () => root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;

  function toggleTheme() {
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem("fluss-theme", root.dataset.theme); } catch { /* not kept then */ }
  }

  // Rows are filtered as one types; Enter searches all pages of the list.
  function filterRows() {
    const input = document.querySelector("[data-filter]");
    if (!input) return;
    const wanted = input.value.toLowerCase();
    for (const row of document.querySelectorAll("[data-filtered] tbody tr")) {
      row.hidden = wanted !== "" && !row.textContent.toLowerCase().includes(wanted);
    }
  }

  let asking = false;
  async function refresh() {
    const live = document.querySelector("#live[data-live=yes]");
    if (!live || asking || document.hidden) return;
    asking = true;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
      if (answer.redirected) { location.reload(); return; }
      if (!answer.ok) return;
      const next = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("#live");
      // What somebody has opened, typed or focused inside of it stays.
      if (!next || live.contains(document.activeElement) && document.activeElement.matches("input")) return;
      const open = new Set([...live.querySelectorAll("details[open]")].map((d) => d.textContent));
      const focused = live.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
      const scrolled = [...live.querySelectorAll(".scroll, .timeline")].map((e) => [e.scrollLeft, e.scrollTop]);
      live.replaceChildren(...next.childNodes);
      for (const details of live.querySelectorAll("details")) details.open = open.has(details.textContent);
      live.querySelectorAll(".scroll, .timeline").forEach((e, i) => { if (scrolled[i]) [e.scrollLeft, e.scrollTop] = scrolled[i]; });
      if (focused) live.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
      filterRows();
      live.dataset.refreshed = String(Number(live.dataset.refreshed || 0) + 1);
    } catch { /* the server is away: the page keeps what it has */ } finally { asking = false; }
  }

  document.addEventListener("DOMContentLoaded", () => {
    document.getElementById("theme")?.addEventListener("click", toggleTheme);
    document.addEventListener("input", (event) => { if (event.target.matches("[data-filter]")) filterRows(); });
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, textarea, select")) return;
      const input = document.querySelector("[data-filter]");
      if (event.key === "/" && input) { event.preventDefault(); input.select(); }
      if (event.key === "r") refresh();
    });
    const seconds = Number(document.body.dataset.interval);
    if (seconds > 0) setInterval(refresh, Math.max(1, seconds) * 1000);
  });
})();
