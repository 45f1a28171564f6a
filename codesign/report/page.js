"use strict";
(function () {
  const shown = 10;
  const text = (cell) => cell.textContent.trim();
  const plain = (words) => words.toLowerCase().replace(/\s+/g, " ");
  const key = (row, at) => { const v = row.cells[at].dataset.v; return v === undefined || v === "" ? null : Number(v); };

  function compare(at, up) {
    return (a, b) => {
      const x = key(a, at), y = key(b, at);
      if (x === null && y === null) return up * text(a.cells[at]).localeCompare(text(b.cells[at]), undefined, { numeric: true });
      if (x === null || y === null) return x === null ? 1 : -1;
      return up * (x - y);
    };
  }

  function sortable(table) {
    const body = table.tBodies[0];
    Array.from(table.tHead.rows[0].cells).forEach((head, at) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
        Array.from(table.tHead.rows[0].cells).forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", up > 0 ? "ascending" : "descending");
        body.append(...Array.from(body.rows).sort(compare(at, up)));
        table.dispatchEvent(new Event("changed"));
      });
    });
  }

  function filterable(table) {
    const box = document.querySelector("[data-filters='" + table.id + "']");
    if (!box) return;
    const input = box.querySelector("input"), all = box.querySelector("button"), told = box.querySelector("output");
    let every = false;
    table.picked = null;
    function follow() {
      const words = plain(input.value).split(",").map((word) => word.trim()).filter(Boolean);
      let count = 0, found = 0;
      Array.from(table.tBodies[0].rows).forEach((row) => {
        const here = plain(row.textContent);
        const kept = words.every((word) => here.includes(word)) && (!table.picked || table.picked.has(row.dataset.design));
        found += kept;
        row.hidden = !kept || (!every && !words.length && !table.picked && count >= shown);
        count += !row.hidden;
      });
      told.textContent = count + " of " + table.tBodies[0].rows.length + " shown" + (table.picked ? ", chosen in the picture" : "");
      all.hidden = every || count === found;
    }
    input.addEventListener("input", follow);
    all.addEventListener("click", () => { every = true; follow(); });
    table.addEventListener("changed", follow);
    box.hidden = false;
    follow();
  }

  function linked(view) {
    const source = view.model.document.get_model_by_name("dots"), table = document.getElementById("designs");
    if (!source || !table) return;
    let own = false;
    const places = new Map(source.data.design.map((design, at) => [String(design), at]));
    const mark = (row) => {
      own = true;
      source.selected.indices = row && places.has(row.dataset.design) ? [places.get(row.dataset.design)] : [];
      own = false;
    };
    const row = (event) => event.target.closest("tbody tr");
    table.addEventListener("mouseover", (event) => mark(row(event)));
    table.addEventListener("focusin", (event) => mark(row(event)));
    table.addEventListener("mouseleave", () => mark(null));
    source.selected.properties.indices.change.connect(() => {
      if (own) return;
      const chosen = source.selected.indices.map((at) => String(source.data.design[at]));
      table.picked = chosen.length ? new Set(chosen) : null;
      table.dispatchEvent(new Event("changed"));
    });
  }

  function budgets() {
    document.querySelectorAll("input[data-elasticity]").forEach((input) => {
      const told = document.getElementById(input.dataset.tells), goal = Number(input.dataset.goal), digits = 4;
      const follow = () => {
        const change = Number(input.value) / 100, slope = Number(change < 0 ? input.dataset.fewer : input.dataset.elasticity);
        const value = goal * Math.pow(1 + change, slope), sign = change < 0 ? "\u2212" : "+";
        told.textContent = sign + Math.abs(100 * change).toFixed(1) + " %: " + input.dataset.before + value.toPrecision(digits) +
          " " + input.dataset.unit + " (" + (100 * (value / goal - 1) + 0).toFixed(2).replace(/^-0\.00$/, "0.00").replace("-", "\u2212") + " %)";
      };
      input.addEventListener("input", follow);
      follow();
    });
  }

  document.querySelectorAll("table.sortable").forEach((table) => { sortable(table); filterable(table); });
  budgets();
  if (window.Bokeh) {
    window.Bokeh.set_log_level("error");
    document.querySelectorAll("script[data-chart]").forEach((item) => {
      window.Bokeh.embed.embed_item(JSON.parse(item.textContent), item.dataset.chart).then((views) => {
        if (item.dataset.chart === "front") linked(views.roots ? views.roots[0] : Array.from(views)[0]);
        document.body.dataset.drawn = (document.body.dataset.drawn || "") + " " + item.dataset.chart;
      });
    });
  }
})();
