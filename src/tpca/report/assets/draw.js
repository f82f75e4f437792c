// Pictures as SVG: lines, points with error bars, bands, bars and maps (report/pictures.py says what they are made of).
// Values show under the pointer; a drag with the mouse zooms in along x, a double click goes back.
const drawPicture = (() => {
  "use strict";
  const LINE = 15;  // height of a line of text
  const pen = document.createElement("canvas").getContext("2d");
  const known = (v) => v !== null && v !== undefined;
  const least = (values) => values.reduce((a, b) => Math.min(a, b), Infinity);
  const most = (values) => values.reduce((a, b) => Math.max(a, b), -Infinity);
  const paint = (name) => `var(--${name})`;

  function put(parent, name, attributes, text) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    parent.append(element);
    return element;
  }

  function widthOf(text) {
    pen.font = `12px ${getComputedStyle(document.body).fontFamily}`;
    return pen.measureText(text).width;
  }

  function wrapped(text, room) {
    const lines = [];
    for (const word of text.split(" ")) {
      const longer = lines.length ? `${lines.at(-1)} ${word}` : word;
      if (lines.length && widthOf(longer) <= room) lines[lines.length - 1] = longer;
      else lines.push(word);
    }
    return lines;
  }

  const minus = (text) => text.replaceAll("-", "−");

  function number(v) {
    if (Number.isInteger(v) || (Math.abs(v) >= 1e-4 && Math.abs(v) < 1e15))
      return minus(v.toLocaleString("en", Number.isInteger(v) ? {} : { maximumSignificantDigits: 4 }));
    return minus(v.toExponential(3));
  }

  function short(v) {
    const size = Math.abs(v);
    for (const [unit, name] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]])
      if (size >= 0.999 * Math.max(unit, 1e4) && size < 1000 * unit) return minus(`${Number((v / unit).toPrecision(4))}${name}`);
    return minus(size && (size < 1e-3 || size >= 1e15) ? Number(v.toPrecision(3)).toExponential() : String(Number(v.toPrecision(6))));
  }

  // From a value to its place between two pixels, and back.
  function scaleOf(axis, values, from, to) {
    const turn = axis.log ? Math.log10 : (v) => v;
    const back = axis.log ? (v) => 10 ** v : (v) => v;
    const seen = values.filter((v) => known(v) && (!axis.log || v > 0)).map(turn);
    let low = seen.length ? least(seen) : 0, high = seen.length ? most(seen) : 1;
    if (axis.zero) [low, high] = [Math.min(low, 0), Math.max(high, 0)];
    const space = high > low ? 0.05 * (high - low) : Math.abs(axis.log ? 1 : low) / 4 || 0.5;
    [low, high] = [axis.zero && low === 0 ? 0 : low - space, high + space];
    if (known(axis.low)) low = turn(axis.low);
    if (known(axis.high)) high = turn(axis.high);
    if (axis.down) [from, to] = [to, from];
    const at = (v) => from + ((turn(v) - low) / (high - low)) * (to - from);
    return { at, value: (place) => back(low + ((place - from) / (to - from)) * (high - low)), low, high };
  }

  function ticksOf(axis, { low, high }, few) {
    if (axis.ticks) return axis.ticks.filter(([v]) => v >= low && v <= high);
    const marks = [], raw = (high - low) / Math.max(few, 2);
    if (axis.log) {
      const step = Math.max(1, Math.ceil(raw)), digits = high - low < 0.5 * few ? [1, 2, 5] : [1];
      for (let power = Math.floor(low); power <= high; power += step)
        for (const digit of digits) if (power + Math.log10(digit) >= low && power + Math.log10(digit) <= high) marks.push(digit * 10 ** power);
    } else {
      const base = 10 ** Math.floor(Math.log10(raw)), nice = base * [1, 2, 5, 10].find((m) => m * base >= 0.999 * raw);
      const step = axis.whole ? Math.max(1, nice) : nice;
      for (let i = Math.ceil(low / step); i * step <= high + 1e-9 * step; i++) marks.push(i * step);
    }
    return marks.map((v) => [v, short(v)]);
  }

  const named = (axis, v) => axis.ticks?.find(([place]) => place === v)?.[1] ?? number(v);

  const SYMBOLS = {
    circle: (x, y, r) => `M${x - r},${y}a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0`,
    square: (x, y, r) => `M${x - r},${y - r}h${2 * r}v${2 * r}h${-2 * r}z`,
    triangle: (x, y, r) => `M${x},${y - r}l${r},${2 * r}h${-2 * r}z`,
    diamond: (x, y, r) => `M${x},${y - 1.3 * r}l${r},${1.3 * r}l${-r},${1.3 * r}l${-r},${-1.3 * r}z`,
    wedge: (x, y, r) => `M${x},${y + r}l${r},${-2 * r}h${-2 * r}z`,
    plus: (x, y, r) => `M${x - r},${y}h${2 * r}M${x},${y - r}v${2 * r}`,
    x: (x, y, r) => `M${x - r},${y - r}l${2 * r},${2 * r}M${x + r},${y - r}l${-2 * r},${2 * r}`,
  };

  function symbolPath(parent, trace, places) {
    const hollow = trace.open || trace.symbol === "plus" || trace.symbol === "x";
    const d = places.map(([x, y]) => SYMBOLS[trace.symbol](x, y, trace.size / 2)).join("");
    const look = { fill: hollow ? "none" : paint(trace.colour), stroke: hollow ? paint(trace.colour) : "none", "stroke-width": 1.8 };
    put(parent, "path", { class: "series", d, opacity: trace.opacity ?? 1, ...look });
  }

  function linePath(parent, trace, places, width) {
    let d = "", before = null;
    for (const place of places) {
      if (place && trace.steps && before) d += `H${place[0]}`;
      if (place) d += `${before ? "L" : "M"}${place[0]},${place[1]}`;
      before = place;
    }
    const look = { fill: "none", stroke: paint(trace.colour), "stroke-width": width, "stroke-dasharray": trace.dash || "none" };
    put(parent, "path", { class: "series", d, "stroke-linejoin": "round", ...look });
  }

  function errorPath(parent, trace, x, y) {
    const d = trace.x.map((v, i) => {
      const w = trace.y[i], below = trace.below[i], above = trace.above[i];
      if (![v, w, below, above].every(known)) return "";
      if (trace.sideways) return `M${x.at(v - below)},${y.at(w)}H${x.at(v + above)}m0,-3v6M${x.at(v - below)},${y.at(w) - 3}v6`;
      return `M${x.at(v)},${y.at(w - below)}V${y.at(w + above)}m-3,0h6M${x.at(v) - 3},${y.at(w - below)}h6`;
    });
    put(parent, "path", { class: "errors", d: d.join(""), fill: "none", stroke: paint(trace.colour), "stroke-width": 1.2 });
  }

  // Edges of cells: half way between their middles.
  function edges(middles) {
    const inner = middles.slice(1).map((v, i) => (v + middles[i]) / 2);
    if (!inner.length) return [middles[0] - 0.5, middles[0] + 0.5];
    return [2 * middles[0] - inner[0], ...inner, 2 * middles.at(-1) - inner.at(-1)];
  }

  const ENDS = [[0, 114, 178], [154, 163, 171], [213, 94, 0]];  // told apart by everybody, on light and on dark ground
  function shade(t) {
    const [from, to] = t < 0 ? [ENDS[1], ENDS[0]] : [ENDS[1], ENDS[2]];
    return `rgb(${from.map((v, i) => Math.round(v + Math.min(1, Math.abs(t)) * (to[i] - v))).join(",")})`;
  }

  function mapImage(parent, trace, x, y, box) {
    const canvas = document.createElement("canvas"), fine = Math.max(1, window.devicePixelRatio || 1);
    [canvas.width, canvas.height] = [fine * box.width, fine * box.height];
    const ground = canvas.getContext("2d");
    ground.scale(fine, fine);
    const across = edges(trace.x).map((v) => x.at(v) - box.left), down = edges(trace.y).map((v) => y.at(v) - box.top);
    trace.z.forEach((row, i) => row.forEach((value, j) => {
      if (!known(value)) return;
      ground.fillStyle = shade(value / (trace.reach || 1));
      const [left, right] = [across[j], across[j + 1]].sort((a, b) => a - b);
      const [top, bottom] = [down[i], down[i + 1]].sort((a, b) => a - b);
      ground.fillRect(left, top, right - left + 0.6, bottom - top + 0.6);  // no seams between cells
    }));
    put(parent, "image", { class: "series", x: box.left, y: box.top, width: box.width, height: box.height, href: canvas.toDataURL() });
    return ({ offsetX, offsetY }) => {
      const find = (all, place) => all.findIndex((v, i) => i + 1 < all.length && (place - v) * (place - all[i + 1]) <= 0);
      const j = find(across, offsetX - box.left), i = find(down, offsetY - box.top);
      return i < 0 || j < 0 ? null : { row: i, column: j, x: offsetX, y: offsetY };
    };
  }

  function mapKey(svg, trace, box) {
    const left = box.left + box.width + 10;
    for (let i = 0; i < 40; i++)
      put(svg, "rect", { x: left, y: box.top + (i * box.height) / 40, width: 10, height: box.height / 40 + 0.6, fill: shade(1 - i / 19.5) });
    for (const [place, value] of [[0.02, trace.reach], [0.5, 0], [0.98, -trace.reach]])
      put(svg, "text", { x: left + 14, y: box.top + place * box.height + 4 }, short(Number(value.toPrecision(2))));
  }

  function legend(div, traces) {
    const list = document.createElement("div");
    list.className = "legend";
    for (const trace of traces) {
      const item = document.createElement("span");
      const key = put(item, "svg", { width: 26, height: 12, viewBox: "0 0 26 12" });
      if (trace.kind === "band") put(key, "rect", { width: 26, height: 12, fill: paint(trace.colour), opacity: 0.25 });
      if (trace.kind === "line" || trace.joined) linePath(key, { ...trace, steps: false }, [[0, 6], [26, 6]], 2);
      if (trace.kind === "points") symbolPath(key, { ...trace, size: 8, opacity: 1 }, [[13, 6]]);
      item.append(` ${trace.name}`);
      list.append(item);
    }
    div.append(list);
  }

  // Along x names that would meet are written at a slant, or some are left out; along y long ones are broken into lines.
  function labelsAcross(axis, x, box, svg) {
    const all = ticksOf(axis, x, box.width / 70), room = box.width / Math.max(1, all.length);
    const longest = most([0, ...all.map(([, text]) => widthOf(text))]), slant = Boolean(axis.ticks) && !axis.sparse && longest + 6 > room;
    const every = Math.max(1, Math.ceil((slant ? 14 : longest + 10) / room));
    const rows = slant ? 0.71 * longest + 16 : LINE + 6;
    if (svg)
      all.forEach(([v, text], i) => {
        const place = x.at(v), bottom = box.top + box.height;
        if (i % every) return;
        if (!axis.ticks || axis.sparse) put(svg, "path", { d: `M${place},${box.top}V${bottom}`, stroke: paint("line"), "stroke-width": 1 });
        const turn = slant ? { transform: `rotate(-45 ${place} ${bottom + 12})`, "text-anchor": "end" } : { "text-anchor": "middle" };
        put(svg, "text", { class: "xtick", x: place, y: bottom + (slant ? 14 : 16), ...turn }, text);
      });
    return { rows, first: slant && all.length ? 0.71 * widthOf(all[0][1]) + 14 - room / 2 : 0 };
  }

  function labelsDown(axis, y, box, room, svg) {
    const all = ticksOf(axis, y, box.height / 45).map(([v, text]) => [v, wrapped(text, room)]);
    if (svg)
      for (const [v, lines] of all) {
        const place = y.at(v);
        put(svg, "path", { d: `M${box.left},${place}H${box.left + box.width}`, stroke: paint("line"), "stroke-width": 1 });
        lines.forEach((text, i) =>
          put(svg, "text", { class: "ytick", x: box.left - 6, y: place + 4 + LINE * (i - (lines.length - 1) / 2), "text-anchor": "end" }, text));
      }
    return most([0, ...all.flatMap(([, lines]) => lines.map(widthOf))]) + 12;
  }

  function valuesOf(traces, key) {
    return traces.flatMap((t) => {
      if (t.kind === "band" && key === "y") return [...t.low, ...t.high];
      if (t.kind === "map") return edges(t[key]);
      if (t.kind === "bars") return key === "x" ? t.x : t.y.flatMap((v) => [v - 0.5, v + 0.5]);
      if (t.below && t.sideways === (key === "x"))
        return [...t[key].map((v, i) => v - (t.below[i] ?? 0)), ...t[key].map((v, i) => v + (t.above[i] ?? 0))];
      return t[key] ?? [];
    });
  }

  function draw(div, given, zoomed) {
    const figure = { ...given, x: zoomed ? { ...given.x, low: zoomed[0], high: zoomed[1] } : given.x };
    const traces = figure.traces.map((t) => (t.kind === "map" && !t.z ? { ...t, z: t.down.map((a) => t.across.map((b) => a * b)) } : t));
    const map = traces.find((t) => t.kind === "map"), width = div.clientWidth, height = figure.height;
    div.replaceChildren();
    if (figure.legend) legend(div, traces.filter((t) => t.name));
    const title = figure.y.title ? wrapped(figure.y.title, width) : [];
    const box = { left: 40, top: 10 + LINE * title.length, width: width - 60, height: height - 80 };
    const [xs, ys] = [valuesOf(traces, "x"), valuesOf(traces, "y")];
    const tight = map ? { low: least(edges(map.y)), high: most(edges(map.y)) } : {};
    const wide = map && !zoomed ? { low: least(edges(map.x)), high: most(edges(map.x)) } : {};
    const xAxis = { ...figure.x, ...wide }, yAxis = { ...figure.y, ...tight };
    const scales = () => [scaleOf(xAxis, xs, box.left, box.left + box.width), scaleOf(yAxis, ys, box.top + box.height, box.top)];
    box.left = labelsDown(yAxis, scales()[1], box, 0.38 * width);
    box.width = width - box.left - (map ? 62 : 14);
    const { rows, first } = labelsAcross(xAxis, scales()[0], box);
    if (first > box.left) [box.width, box.left] = [box.width - first + box.left, first];
    const below = figure.x.title ? wrapped(figure.x.title, width) : [];
    box.height = height - box.top - rows - LINE * below.length - 6;
    const [x, y] = scales();

    const svg = put(div, "svg", { width, height, "font-size": 12, fill: paint("ink") });
    title.forEach((text, i) => put(svg, "text", { class: "ytitle", x: 0, y: 12 + LINE * i }, text));
    below.forEach((text, i) => {
      const middle = Math.max(widthOf(text) / 2, Math.min(width - widthOf(text) / 2, box.left + box.width / 2));
      put(svg, "text", { class: "xtitle", x: middle, y: box.top + box.height + rows + 12 + LINE * i, "text-anchor": "middle" }, text);
    });
    labelsAcross(xAxis, x, box, svg);
    labelsDown(yAxis, y, box, 0.38 * width, svg);
    const clip = put(svg, "clipPath", { id: `clip-${div.id}` });
    put(clip, "rect", { x: box.left - 5, y: box.top - 5, width: box.width + 10, height: box.height + 10 });
    const inside = put(svg, "g", { "clip-path": `url(#clip-${div.id})` });

    let cell = null;
    const marks = [];
    for (const trace of traces) {
      const places = (trace.kind === "line" || trace.kind === "points") && trace.x.map((v, i) => {
        const shown = known(v) && known(trace.y[i]) && !(figure.x.log && v <= 0) && !(figure.y.log && trace.y[i] <= 0);
        return shown ? [x.at(v), y.at(trace.y[i])] : null;
      });
      if (trace.kind === "upright") put(inside, "path", { class: "series", d: `M${x.at(trace.x[0])},${box.top}v${box.height}`, stroke: paint(trace.colour), "stroke-width": 1.5, "stroke-dasharray": trace.dash });
      if (trace.kind === "map") [cell] = [mapImage(inside, trace, x, y, box), mapKey(svg, trace, box)];
      if (trace.kind === "band") {
        const point = (v, i, ends) => `${x.at(v)},${y.at(ends[i])}`;
        const d = [...trace.x.map((v, i) => point(v, i, trace.high)), ...trace.x.map((v, i) => point(v, i, trace.low)).reverse()].join("L");
        put(inside, "path", { class: "series", d: `M${d}z`, fill: paint(trace.colour), opacity: 0.22 });
      }
      if (trace.kind === "bars")
        trace.x.forEach((v, i) => {
          const end = x.at(v), place = y.at(trace.y[i]), thick = 0.6 * Math.abs(y.at(1) - y.at(0)), room = end - box.left > widthOf(trace.text[i]) + 12;
          put(inside, "path", { class: "series", d: `M${box.left},${place - thick / 2}H${end}v${thick}H${box.left}z`, fill: paint(trace.colour) });
          put(inside, "text", { x: end + (room ? -6 : 6), y: place + 4, "text-anchor": room ? "end" : "start", fill: paint(room ? "ground" : "ink") }, trace.text[i]);
          marks.push({ x: (box.left + end) / 2, y: place, text: `${named(figure.y, trace.y[i])}: ${trace.text[i]}` });
        });
      if (!places) continue;
      if (trace.kind === "line" || trace.joined) linePath(inside, trace, places, trace.joined ? 1 : trace.width);
      if (trace.below) errorPath(inside, trace, x, y);
      if (trace.kind === "points") symbolPath(inside, trace, places.filter(Boolean));
      places.forEach((place, i) => {
        if (!place || place[0] < box.left - 5 || place[0] > box.left + box.width + 5) return;
        const told = trace.hover?.[i] ?? `${named(figure.x, trace.x[i])}: ${named(figure.y, trace.y[i])}`;
        marks.push({ x: place[0], y: place[1], text: figure.legend && trace.name ? `${told}\n${trace.name}` : told });
      });
    }
    hover(div, svg, figure, marks, cell && ((event) => {
      const found = cell(event);
      return found && { x: found.x, y: found.y, text: `${named(xAxis, map.x[found.column])}, ${named(yAxis, map.y[found.row])}: ${number(map.z[found.row][found.column])}` };
    }));
    zoom(svg, box, x, (range) => draw(div, given, range));
  }

  function hover(div, svg, figure, marks, cell) {
    const tip = document.createElement("div");
    tip.className = "tip";
    tip.hidden = true;
    div.append(tip);
    const ring = put(svg, "circle", { r: 6, fill: "none", stroke: paint("ink"), "stroke-width": 1.5, visibility: "hidden" });
    const nearest = ({ offsetX, offsetY }) => {
      let best = null, reach = 60;
      for (const mark of marks) {
        const far = Math.hypot(mark.x - offsetX, (mark.y - offsetY) / 2);
        if (far < reach) [best, reach] = [mark, far];
      }
      return best;
    };
    const show = (event) => {
      const found = cell ? cell(event) : nearest(event);
      tip.hidden = !found;
      ring.setAttribute("visibility", found ? "visible" : "hidden");
      if (!found) return;
      ring.setAttribute("cx", found.x);
      ring.setAttribute("cy", found.y);
      tip.textContent = found.text;
      tip.style.left = `${Math.max(0, Math.min(found.x + 10, div.clientWidth - tip.offsetWidth))}px`;
      const above = svg.offsetTop ?? svg.getBoundingClientRect().top - div.getBoundingClientRect().top;
      tip.style.top = `${above + Math.max(0, found.y - tip.offsetHeight - 10)}px`;
    };
    for (const kind of ["pointermove", "pointerdown"]) svg.addEventListener(kind, show);
    svg.addEventListener("pointerleave", () => { tip.hidden = true; ring.setAttribute("visibility", "hidden"); });
  }

  function zoom(svg, box, x, redraw) {
    let from = null;
    svg.addEventListener("pointerdown", (event) => { from = event.pointerType === "mouse" ? event.offsetX : null; });
    svg.addEventListener("pointerup", (event) => {
      const ends = [from, event.offsetX].map((place) => Math.max(box.left, Math.min(box.left + box.width, place)));
      if (from !== null && Math.abs(ends[1] - ends[0]) > 12) redraw(ends.map(x.value).sort((a, b) => a - b));
      from = null;
    });
    svg.addEventListener("dblclick", () => redraw(null));
  }

  return (div, figure) => draw(div, figure, null);
})();
