// Tabs, and pictures drawn when they are first seen. Without this script, every number is still in the tables.
(() => {
  "use strict";
  const root = document.documentElement;
  const tabs = [...document.querySelectorAll("[role=tab]")];
  const panels = tabs.map((tab) => document.getElementById(tab.getAttribute("aria-controls")));
  const source = document.getElementById("figures");
  const figures = source ? JSON.parse(source.textContent) : {};
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let ready = null;

  async function unpack() {
    const packed = document.getElementById("plotly").textContent;
    const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
    if (!window.Plotly) throw new Error("plotly did not start");
  }

  // Colours written as @name follow the page, so that pictures change with it between light and dark.
  function themed(value, key) {
    if (Array.isArray(value)) return value.map((item) => themed(item, key));
    if (value && typeof value === "object")
      return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, themed(item, name)]));
    if (typeof value === "string" && value.startsWith("@") && /color$/.test(key || ""))
      return getComputedStyle(root).getPropertyValue(`--${value.slice(1)}`).trim();
    return value;
  }

  function draw(div) {
    const figure = themed(figures[div.dataset.figure]);
    const narrow = div.clientWidth < 520;
    const layout = { ...figure.layout, autosize: true, dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom" };
    if (narrow) layout.margin = { ...layout.margin, r: 8 };
    const bar = matchMedia("(hover: hover)").matches && !narrow ? "hover" : false;
    const modeBarButtons = [["toImage", "zoom2d", "pan2d", "resetScale2d"]];
    const options = { responsive: true, displaylogo: false, displayModeBar: bar, modeBarButtons };
    div.dataset.drawn = "yes";
    return Plotly.react(div, figure.data, layout, options);
  }

  async function drawShown() {
    const waiting = [...document.querySelectorAll(".plot")].filter((div) => div.offsetParent && !div.dataset.drawn);
    if (!waiting.length) return;
    try {
      ready ??= unpack();
      await ready;
      await Promise.all(waiting.map(draw));
    } catch (error) {
      for (const div of waiting) {
        div.style.height = "auto";
        div.className = "failed";
        div.textContent = "This picture needs a newer browser; its numbers are in the tables.";
      }
    }
  }

  async function choose(index, focus) {
    tabs.forEach((tab, i) => {
      tab.setAttribute("aria-selected", String(i === index));
      tab.tabIndex = i === index ? 0 : -1;
      panels[i].hidden = i !== index;
    });
    if (focus) tabs[index].focus();
    await drawShown();
    root.dataset.shown = panels[index].id;
  }

  tabs.forEach((tab, index) => {
    tab.addEventListener("click", () => {
      choose(index, false);
      try { history.replaceState(null, "", `#${panels[index].id}`); } catch { /* not allowed for some local files */ }
    });
    tab.addEventListener("keydown", (event) => {
      const last = tabs.length - 1;
      const place = { ArrowRight: index === last ? 0 : index + 1, ArrowLeft: index === 0 ? last : index - 1, Home: 0, End: last }[event.key];
      if (place === undefined) return;
      event.preventDefault();
      choose(place, true);
    });
  });

  dark.addEventListener("change", () => document.querySelectorAll(".plot[data-drawn]").forEach(draw));
  addEventListener("beforeprint", () => { panels.forEach((panel) => { panel.hidden = false; }); drawShown(); });
  addEventListener("afterprint", () => choose(Math.max(0, tabs.findIndex((t) => t.getAttribute("aria-selected") === "true")), false));

  async function begin() {
    if (tabs.length > 1) {
      document.body.classList.add("tabbed");
      document.querySelector("[role=tablist]").hidden = false;
      await choose(Math.max(0, panels.findIndex((panel) => `#${panel.id}` === location.hash)), false);
    } else {
      await drawShown();
    }
    root.dataset.ready = "yes";
  }
  begin();
})();
