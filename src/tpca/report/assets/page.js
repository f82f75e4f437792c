// Tabs, and pictures drawn when they are first seen. Without this script, every number is still in the tables.
(() => {
  "use strict";
  const root = document.documentElement;
  const tabs = [...document.querySelectorAll("[role=tab]")];
  const panels = tabs.map((tab) => document.getElementById(tab.getAttribute("aria-controls")));
  const source = document.getElementById("figures");
  const figures = source ? JSON.parse(source.textContent) : {};

  function draw(div) {
    drawPicture(div, figures[div.dataset.figure]);
    div.dataset.drawn = String(div.clientWidth);
  }

  // Pictures that can be seen, if they are not drawn at this width; colours are those of the page and need no redrawing.
  function drawShown() {
    const shown = [...document.querySelectorAll(".plot")].filter((div) => div.offsetParent && div.clientWidth > 100);  // less is no window yet
    for (const div of shown.filter((one) => one.dataset.drawn !== String(one.clientWidth)))
      try {
        draw(div);
      } catch (error) {
        div.className = "failed";
        div.textContent = "This picture needs a newer browser; its numbers are in the tables.";
        console.error(error);
      }
  }

  function choose(index, focus) {
    tabs.forEach((tab, i) => {
      tab.setAttribute("aria-selected", String(i === index));
      tab.tabIndex = i === index ? 0 : -1;
      panels[i].hidden = i !== index;
    });
    if (focus) tabs[index].focus();
    drawShown();
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

  addEventListener("resize", drawShown);
  addEventListener("beforeprint", () => { panels.forEach((panel) => { panel.hidden = false; }); drawShown(); });
  addEventListener("afterprint", () => choose(Math.max(0, tabs.findIndex((t) => t.getAttribute("aria-selected") === "true")), false));

  if (tabs.length > 1) {
    document.body.classList.add("tabbed");
    document.querySelector("[role=tablist]").hidden = false;
    choose(Math.max(0, panels.findIndex((panel) => `#${panel.id}` === location.hash)), false);
  } else {
    drawShown();
  }
  root.dataset.ready = "yes";
})();
