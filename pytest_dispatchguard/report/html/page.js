"use strict";
(() => {
  const MAYBE = 1, FIX = 2, WAITS = 8, NOTE = 16, STEP = 200;
  const LEVELS = { sure: 0, note: NOTE, maybe: MAYBE };
  const THEMES = ["", "dark", "light"];
  const KEY = "dispatchguard-theme";
  const byId = (name) => document.getElementById(name);

  function stored(value) {
    // Some browsers let no file keep anything.
    try {
      if (value !== undefined) localStorage.setItem(KEY, value);
      return localStorage.getItem(KEY) ?? "";
    } catch {
      return value ?? "";
    }
  }

  function wear(theme) {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
  }

  // Before anything is drawn.
  let theme = THEMES.includes(stored()) ? stored() : "";
  wear(theme);

  function themes() {
    const button = byId("theme");
    const say = () => { button.textContent = `Theme: ${theme || "as the system"}`; };
    button.addEventListener("click", () => {
      theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
      stored(theme);
      wear(theme);
      say();
    });
    say();
    button.hidden = false;
  }

  function findings() {
    const list = byId("rows"), form = byId("filter"), more = byId("more");
    const rows = JSON.parse(byId("data").textContent).map(([path, line, code, cost, flags, html], n) => (
      { n, path, line, code, cost, flags, html, item: byId(`f${n}`), words: null }
    ));
    if (!rows.length) return;
    const field = (name) => form.elements[name];
    const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
    const orders = {
      file: (a, b) => a.n - b.n,
      cost: (a, b) => b.cost - a.cost || a.n - b.n,
      place: (a, b) => compare(a.path, b.path) || a.line - b.line || a.n - b.n,
      code: (a, b) => compare(a.code, b.code) || b.cost - a.cost || a.n - b.n,
    };
    const heads = { file: (row) => row.path, cost: () => "", place: (row) => row.path, code: (row) => row.code };
    let chosen = rows, shown = list.querySelectorAll("li").length;
    let head = shown ? rows[shown - 1].path : null;
    let group = list.querySelector(".group:last-child > ol");

    // What is HTML here was escaped by whoever made the page.
    function item(row) {
      if (!row.item) {
        const made = document.createElement("template");
        made.innerHTML = row.html;
        row.item = made.content.firstElementChild;
        row.html = "";
      }
      return row.item;
    }

    const signs = { lt: "<", gt: ">", quot: '"', "#x27": "'", amp: "&" };
    function words(row) {
      if (row.words === null) {
        const told = row.item ? row.item.textContent
          : row.html.replace(/<[^>]*>/g, "").replace(/&(lt|gt|quot|#x27|amp);/g, (_, name) => signs[name]);
        row.words = told.toLowerCase();
      }
      return row.words;
    }

    function show(upto) {
      const last = Math.min(upto, chosen.length);
      const key = heads[field("order").value];
      for (; shown < last; shown++) {
        const row = chosen[shown];
        if (key(row) !== head || !group) {
          head = key(row);
          const section = document.createElement("section");
          section.className = "group";
          if (head) section.append(Object.assign(document.createElement("h3"), { textContent: head }));
          group = section.appendChild(document.createElement("ol"));
          list.append(section);
        }
        group.append(item(row));
      }
      const left = chosen.length - shown;
      more.parentElement.hidden = !left;
      more.textContent = `Show ${Math.min(left, STEP)} more`;
      const of = chosen.length === rows.length ? `${rows.length}` : `${chosen.length} of ${rows.length}`;
      byId("told").textContent = `${of} ${rows.length === 1 ? "finding" : "findings"}${left ? `, the first ${shown} shown` : ""}`;
    }

    function update() {
      const terms = field("text").value.toLowerCase().split(/\s+/).filter(Boolean);
      const [code, file, sure, order] = ["code", "file", "certainty", "order"].map((name) => field(name).value);
      const flags = (field("fix").checked ? FIX : 0) | (field("wait").checked ? WAITS : 0);
      chosen = rows.filter((row) => (
        (!code || row.code === code)
        && (!file || row.path === file)
        && (!sure || (row.flags & (MAYBE | NOTE)) === LEVELS[sure])
        && (row.flags & flags) === flags
        && terms.every((term) => words(row).includes(term))
      )).sort(orders[order]);
      list.classList.toggle("by-file", order === "file" || order === "place");
      const focused = document.activeElement;
      list.replaceChildren();
      [shown, head, group] = [0, null, null];
      show(STEP);
      // What is taken out loses the focus, also where it comes back.
      if (list.contains(focused)) focused.focus({ preventScroll: true });
    }

    let timer = 0;
    function soon() {
      clearTimeout(timer);
      timer = setTimeout(settle, 120);
    }

    function settle() {
      if (!timer) return;
      clearTimeout(timer);
      timer = 0;
      update();
    }

    function go(at) {
      if (at < 0 || at >= chosen.length) return;
      if (at >= shown) show(at + STEP);
      const summary = item(chosen[at]).querySelector("summary");
      summary.focus();
      summary.scrollIntoView({ block: "nearest" });
    }

    function reveal() {
      const row = rows[/^#f(\d+)$/.exec(location.hash)?.[1] ?? -1];
      if (!row) return;
      if (!chosen.includes(row)) {
        form.reset();
        update();
      }
      item(row).querySelector("details").open = true;
      go(chosen.indexOf(row));
    }

    function pressed(event) {
      if (event.ctrlKey || event.metaKey || event.altKey || !byId("keys").checked) return;
      const target = event.target;
      if (target.closest("select, input:not([type=checkbox])")) {
        if (event.key === "Escape" && target === field("text")) target.blur();
        return;
      }
      settle();
      const here = target.closest("#rows li");
      const at = here ? chosen.findIndex((row) => row.item === here) : -1;
      const arrow = here && target.closest("summary");
      if (event.key === "/") field("text").focus();
      else if (event.key === "j" || (arrow && event.key === "ArrowDown")) go(at + 1);
      else if (event.key === "k" || (arrow && event.key === "ArrowUp")) go(at - 1);
      else return;
      event.preventDefault();
    }

    form.addEventListener("input", soon);
    form.addEventListener("submit", (event) => event.preventDefault());
    more.addEventListener("click", () => go(shown));
    const nearing = new IntersectionObserver((entries) => {
      if (!entries.at(-1).isIntersecting) return;
      show(shown + STEP);
      // Anew: one that is near still, or again by the next frame, tells of no change.
      nearing.unobserve(more);
      nearing.observe(more);
    }, { rootMargin: "400px" });
    nearing.observe(more);
    document.addEventListener("keydown", pressed);
    addEventListener("hashchange", reveal);
    document.addEventListener("click", (event) => {
      if (event.target.closest?.("a[href^='#f']")?.hash === location.hash) reveal();
    });
    form.hidden = false;
    show(shown);
    reveal();
  }

  document.addEventListener("DOMContentLoaded", () => {
    themes();
    if (byId("rows")) findings();
  });
})();
