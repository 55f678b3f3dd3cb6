// OHM beside Dual-OHM on a rotation: how the noise of each round travels to the last iterate.
// F(x) = x - R x in the plane, R a rotation by `ANGLE`; L = 2, step 1, so a round computes T_k = R x_k + noise of round k.
// Points are complex numbers [re, im]. The weights are those of dualanchor.theory.weights.
"use strict";

(function () {
  const ANGLE = 0.9;
  const START = [1, 0];
  const LARGEST = 120;

  // -- complex numbers -------------------------------------------------------------------------------------------

  const add = (a, b) => [a[0] + b[0], a[1] + b[1]];
  const sub = (a, b) => [a[0] - b[0], a[1] - b[1]];
  const scale = (c, a) => [c * a[0], c * a[1]];
  const times = (a, b) => [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]];
  const size = (a) => Math.hypot(a[0], a[1]);
  const turned = (power) => [Math.cos(power * ANGLE), Math.sin(power * ANGLE)];
  const range = (count) => Array.from({ length: count }, (_, i) => i);
  const F_OF_ONE = size(sub([1, 0], turned(1))); // |F(x)| = F_OF_ONE |x|

  // -- closed forms; N is the horizon, k = 0 .. N - 2 a round ----------------------------------------------------------

  // theory.round_weights: 1/(m (m - 1)) with m = N - k.
  const roundWeights = (N) => range(N - 1).map((k) => 1 / ((N - k) * (N - k - 1)));

  // theory.leave_one_out: how much of a change in round s is left at x_k, at most.
  const leaveOneOut = (N, s, k) => 0.5 * (1 + ((N - k) * (N - k - 1)) / ((N - s) * (N - s - 1)));

  // theory.anchor_multipliers with step 1: j (j + 1)/(2 N), j = 1 .. N - 1.
  const anchorMultipliers = (N) => range(N - 1).map((k) => ((k + 1) * (k + 2)) / (2 * N));

  // By what the noise of round k is multiplied on its way to x_{N-1}.
  const anchorGains = (N) => range(N - 1).map((k) => scale((k + 1) / N, turned(N - 2 - k)));

  function dualGains(N) {
    const weights = roundWeights(N);
    const gains = new Array(N - 1);
    let sum = [0, 0]; // of (i + 1) R^i, i = 0 .. m - 2
    for (let k = N - 2; k >= 0; k -= 1) {
      const i = N - k - 2;
      sum = add(sum, scale(i + 1, turned(i)));
      gains[k] = scale(weights[k], sum);
    }
    return gains;
  }

  // Where both methods end without noise: the mean of x0, R x0, .., R^{N-1} x0.
  const noiseless = (N) => scale(1 / N, range(N).map((k) => times(turned(k), START)).reduce(add));

  const spread = (gains) => gains.reduce((total, gain) => total + size(gain) ** 2, 0);

  // Root mean square residuals of the last iterates; sigma is the noise of one sample, B the samples of a round.
  function residuals(N, B, sigma) {
    const start = size(noiseless(N)) ** 2;
    const of = (gains) => F_OF_ONE * Math.sqrt(start + ((sigma * sigma) / B) * spread(gains));
    return { ohm: of(anchorGains(N)), dual: of(dualGains(N)), noiseless: F_OF_ONE * Math.sqrt(start) };
  }

  // -- the two methods, step by step --------------------------------------------------------------------------------

  function ohmPath(noise) {
    const path = [START];
    noise.forEach((e, k) => {
      const T = add(times(turned(1), path[k]), e);
      path.push(add(scale(1 / (k + 2), START), scale((k + 1) / (k + 2), T)));
    });
    return path;
  }

  function dualPath(noise) {
    const N = noise.length + 1;
    const path = [START];
    let before = START;
    noise.forEach((e, k) => {
      const T = add(times(turned(1), path[k]), e);
      path.push(add(path[k], scale((N - k - 1) / (N - k), sub(T, before))));
      before = T;
    });
    return path;
  }

  // What is left of a unit of noise from round s at x_{s+1} .. x_{N-1}.
  function travel(path, N, s) {
    const unit = range(N - 1).map((k) => (k === s ? [1, 0] : [0, 0]));
    const [with_, without] = [path(unit), path(unit.map(() => [0, 0]))];
    return range(N - 1 - s).map((i) => size(sub(with_[s + 1 + i], without[s + 1 + i])));
  }

  // Standard normal noise, the same for the same seed (mulberry32 and Box-Muller).
  function normals(count, seed) {
    let a = seed >>> 0;
    const uniform = () => {
      a = (a + 0x6d2b79f5) | 0;
      let t = Math.imul(a ^ (a >>> 15), 1 | a);
      t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
      return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
    };
    return range(count).map(() => {
      const r = Math.sqrt(-2 * Math.log(1 - uniform()));
      const phase = 2 * Math.PI * uniform();
      return [(r * Math.cos(phase)) / Math.SQRT2, (r * Math.sin(phase)) / Math.SQRT2];
    });
  }

  window.dualanchorExplainer = {
    ANGLE, START, roundWeights, leaveOneOut, anchorMultipliers, anchorGains, dualGains, noiseless, residuals,
    ohmPath, dualPath, travel, normals,
  };

  // -- drawing ----------------------------------------------------------------------------------------------------

  const NS = "http://www.w3.org/2000/svg";

  function node(name, attributes, parent, text) {
    const made = document.createElementNS(NS, name);
    Object.entries(attributes).forEach(([key, value]) => made.setAttribute(key, value));
    if (text !== undefined) made.textContent = text;
    parent.appendChild(made);
    return made;
  }

  const line = (points) => points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(2)} ${y.toFixed(2)}`).join("");

  // From blue, the first round, to orange, the last one.
  const colour = (k, rounds) => `hsl(${220 - (190 * k) / Math.max(1, rounds - 1)} 75% 52%)`;

  function plane(svg, path, gains, noise, reach, followed) {
    svg.replaceChildren();
    const S = 300;
    const at = ([x, y]) => [S / 2 + (x / reach) * (S / 2), S / 2 - (y / reach) * (S / 2)];
    node("path", { d: `M0 ${S / 2}H${S}M${S / 2} 0V${S}`, class: "axis" }, svg);
    node("path", { d: line(path.map(at)), class: "path" }, svg);
    node("circle", { cx: S / 2, cy: S / 2, r: 4, class: "root" }, svg);
    let end = noiseless(path.length);
    const [x0, y0] = at(end);
    node("rect", { x: x0 - 4, y: y0 - 4, width: 8, height: 8, class: "clean" }, svg);
    gains.forEach((gain, k) => {
      const next = add(end, times(gain, noise[k]));
      const marked = k === followed ? "piece followed" : "piece";
      node("path", { d: line([at(end), at(next)]), class: marked, stroke: colour(k, gains.length) }, svg);
      end = next;
    });
    const [x, y] = at(path[path.length - 1]);
    node("circle", { cx: x, cy: y, r: 5, class: "last" }, svg);
    const [u, v] = at(START);
    node("circle", { cx: u, cy: v, r: 4, class: "start" }, svg);
    node("text", { x: u + 8, y: v - 6 }, svg, "start");
  }

  // A chart of curves {points, class}; axes from 0 or logarithmic.
  function chart(svg, curves, options) {
    svg.replaceChildren();
    const [W, H, left, bottom, top] = [420, 240, 46, 34, 10];
    const all = curves.flatMap((curve) => curve.points);
    const bring = options.log ? Math.log10 : (value) => value;
    const xs = all.map((p) => bring(p[0]));
    const ys = all.map((p) => bring(p[1]));
    const [x0, x1] = [Math.min(...xs), Math.max(...xs)];
    const y0 = options.log ? Math.min(...ys) : 0;
    const y1 = Math.max(...ys, y0 + 1e-9);
    const X = (x) => left + ((bring(x) - x0) / Math.max(1e-9, x1 - x0)) * (W - left - 10);
    const Y = (y) => H - bottom - ((bring(y) - y0) / (y1 - y0)) * (H - bottom - top);
    node("path", { d: `M${left} ${top}V${H - bottom}H${W - 10}`, class: "axis" }, svg);
    options.xticks.forEach((x) => node("text", { x: X(x), y: H - bottom + 14, "text-anchor": "middle" }, svg, x));
    options.yticks(options.log ? 10 ** y0 : 0, options.log ? 10 ** y1 : y1).forEach((y) => {
      node("text", { x: left - 5, y: Y(y) + 4, "text-anchor": "end" }, svg, String(y));
      node("path", { d: `M${left} ${Y(y)}H${W - 10}`, class: "grid" }, svg);
    });
    node("text", { x: (left + W) / 2, y: H - 4, "text-anchor": "middle" }, svg, options.xlabel);
    curves.forEach(({ points, kind, dots }) => {
      const placed = points.map(([x, y]) => [X(x), Y(y)]);
      if (!dots) node("path", { d: line(placed), class: `curve ${kind}` }, svg);
      else placed.forEach(([cx, cy]) => node("circle", { cx, cy, r: 4, class: kind }, svg));
    });
  }

  const decades = (low, high) =>
    range(12).map((i) => Number((10 ** (i - 5)).toPrecision(1))).filter((y) => y >= low * 0.99 && y <= high * 1.01);

  const quarters = (_, high) => {
    const step = high > 2 ? Math.ceil(high / 4) : high > 0.8 ? 0.25 : high > 0.3 ? 0.1 : high / 3;
    return range(6).map((i) => Number((i * step).toPrecision(2))).filter((y) => y <= high * 1.001);
  };

  // -- the page ------------------------------------------------------------------------------------------------------

  function begin(root) {
    const find = (name) => root.querySelector(`[data-part="${name}"]`);
    const inputs = Object.fromEntries(["horizon", "batch", "noise", "round"].map((name) => [name, find(name)]));
    let seed = 7;

    function draw() {
      const N = Number(inputs.horizon.value);
      const B = 2 ** Number(inputs.batch.value);
      const sigma = Number(inputs.noise.value);
      inputs.round.max = N - 2;
      const s = Math.min(Number(inputs.round.value), N - 2);
      const noise = normals(LARGEST, seed).slice(0, N - 1).map((e) => scale(sigma / Math.sqrt(B), e));
      const methods = { ohm: [ohmPath, anchorGains(N)], dual: [dualPath, dualGains(N)] };
      const paths = Object.values(methods).map(([path]) => path(noise));
      const reach = 1.12 * Math.max(1, ...paths.flat().map((p) => Math.max(Math.abs(p[0]), Math.abs(p[1]))));
      Object.entries(methods).forEach(([name, [path, gains]]) => plane(find(name), path(noise), gains, noise, reach, s));

      const by_round = Object.entries(methods).map(([kind, [, gains]]) => ({
        kind,
        points: gains.map((gain, k) => [k, (sigma / Math.sqrt(B)) * size(gain)]),
      }));
      const rounds = [0, Math.round((N - 2) / 2), N - 2];
      chart(find("rounds"), by_round, { xlabel: "round k", xticks: rounds, yticks: quarters });

      const left = Object.entries(methods).map(([kind, [path]]) => ({
        kind,
        points: travel(path, N, s).map((value, i) => [s + 1 + i, value]),
      }));
      const bound = range(N - 1 - s).map((i) => [s + 1 + i, leaveOneOut(N, s, s + 1 + i)]);
      const steps = [...new Set([s + 1, N - 1])];
      const travelled = [...left, { kind: "bound", points: bound }];
      const single = travelled.map((curve) => ({ ...curve, dots: bound.length === 1 }));
      chart(find("travel"), single, { xlabel: "iterate x_k", xticks: steps, yticks: quarters });

      const horizons = range(LARGEST - 3).map((i) => i + 4);
      const ends = horizons.map((n) => [n, residuals(n, B, sigma)]);
      const floor = Math.max(1e-3, 0.3 * Math.min(...ends.map(([, r]) => r.dual))); // full turns end at the centre
      const clipped = (kind) => ends.map(([n, r]) => [n, Math.max(floor, r[kind])]);
      const curves = ["ohm", "dual", "noiseless"].map((kind) => ({ kind, points: clipped(kind) }));
      const here = residuals(N, B, sigma);
      const marks = ["ohm", "dual"].map((kind) => ({ kind: `${kind} mark`, dots: true, points: [[N, Math.max(floor, here[kind])]] }));
      const ticks = { xlabel: "horizon N", xticks: [4, 10, 30, LARGEST], yticks: decades, log: true };
      chart(find("horizons"), [...curves, ...marks], ticks);

      find("horizon-value").textContent = N;
      find("batch-value").textContent = B;
      find("noise-value").textContent = sigma.toFixed(2);
      find("round-value").textContent = s;
      const show = (value) => value.toPrecision(3);
      find("result").textContent =
        `Residual of the last iterate, root mean square: OHM ${show(here.ohm)}, Dual-OHM ${show(here.dual)}; ` +
        `without noise both ${show(here.noiseless)}.`;
    }

    Object.values(inputs).forEach((input) => input.addEventListener("input", draw));
    find("again").addEventListener("click", () => {
      seed += 1;
      draw();
    });
    draw();
    root.dataset.ready = "yes";
  }

  document.querySelectorAll(".explainer").forEach(begin);
})();
