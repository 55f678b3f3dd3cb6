// Draws the figures of the report with colours from its style sheet, and switches methods on and off.
(function () {
  "use strict";
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const places = Array.from(document.querySelectorAll("[data-figure]"));
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const touch = window.matchMedia("(pointer: coarse)");
  const BLACK = "#000000";
  const NARROW = 560;

  const config = {
    displaylogo: false,
    displayModeBar: touch.matches ? false : "hover",
    modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
    showSendToCloud: false,
    plotlyServerURL: "",
  };

  function colours() {
    const style = getComputedStyle(document.documentElement);
    const get = (name) => style.getPropertyValue(name).trim();
    return { ink: get("--ink"), soft: get("--soft"), grid: get("--line"), paper: get("--paper"), font: get("--sans") };
  }

  function buttons(place) {
    return Array.from(place.closest("figure").querySelectorAll("[data-method]"));
  }

  function traces(place, theme) {
    const hidden = buttons(place).filter((button) => button.getAttribute("aria-pressed") === "false");
    const names = new Set(hidden.map((button) => button.dataset.method));
    return figures[place.dataset.figure].data.map((trace) => {
      const copy = JSON.parse(JSON.stringify(trace));
      copy.visible = !names.has(copy.meta);
      if (copy.line.color === BLACK) {
        copy.line.color = theme.ink;
        if (copy.marker) copy.marker.color = theme.ink;
        if (copy.fill) copy.fillcolor = "rgba(128,128,128,0.22)";
      }
      return copy;
    });
  }

  function layout(place, theme) {
    const width = place.clientWidth;
    const narrow = width < NARROW;
    const given = JSON.parse(JSON.stringify(figures[place.dataset.figure].layout));
    const axis = { gridcolor: theme.grid, linecolor: theme.soft, tickcolor: theme.soft, ticks: "outside", showline: true };
    return Object.assign(given, {
      xaxis: Object.assign(given.xaxis, axis, { nticks: narrow ? 7 : 12 }),
      yaxis: Object.assign(given.yaxis, axis, { automargin: true }),
      width: width,
      height: Math.round(Math.min(460, Math.max(320, 0.6 * width))),
      margin: { l: narrow ? 48 : 64, r: 28, t: 12, b: 48 },
      hovermode: narrow ? "closest" : given.hovermode,
      hoverlabel: { bgcolor: theme.paper, bordercolor: theme.grid, font: { color: theme.ink, family: theme.font } },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: theme.soft, activecolor: theme.ink },
      dragmode: touch.matches ? false : "zoom",
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: theme.font, size: narrow ? 12 : 13, color: theme.ink },
      uirevision: "keep",
    });
  }

  function draw(place, theme) {
    return Plotly.react(place, traces(place, theme), layout(place, theme), config);
  }

  function drawAll() {
    const theme = colours();
    places.forEach((place) => draw(place, theme));
  }

  function press(button, on) {
    button.setAttribute("aria-pressed", String(on));
  }

  for (const place of places) {
    for (const button of buttons(place)) {
      button.addEventListener("click", () => {
        press(button, button.getAttribute("aria-pressed") === "false");
        draw(place, colours());
      });
      button.addEventListener("dblclick", () => {
        const others = buttons(place).filter((other) => other !== button);
        const alone = others.every((other) => other.getAttribute("aria-pressed") === "false");
        others.forEach((other) => press(other, alone));
        press(button, true);
        draw(place, colours());
      });
    }
  }

  let waiting = 0;
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth === width) return;
    width = window.innerWidth;
    window.clearTimeout(waiting);
    waiting = window.setTimeout(drawAll, 100);
  });
  dark.addEventListener("change", drawAll);
  drawAll();
})();
