// The drawings of the page: lines on a grid of 24, in the colour of the text around them.

const SPACE = "http://www.w3.org/2000/svg";

const LINES = {
  back: "M15 5l-7 7 7 7",
  send: "M4 12l16-7-6 15-3-6.5zM11 13.5l9-8.5",
  more: "M12 5.5v.01M12 12v.01M12 18.5v.01",
  close: "M6 6l12 12M18 6L6 18",
  search: "M11 4a7 7 0 1 1 0 14 7 7 0 0 1 0-14M16.2 16.2L21 21",
  settings: "M4 7h9M19 7h1M4 17h1M11 17h9M16 4.5a2.5 2.5 0 1 1 0 5 2.5 2.5 0 0 1 0-5M8 14.5a2.5 2.5 0 1 1 0 5 2.5 2.5 0 0 1 0-5",
  down: "M6 9l6 6 6-6",
  edit: "M5 19l1-4L16 5l3 3L9 18z",
  trash: "M5 7h14M9 7V4.5h6V7M7 7l1 12.5h8L17 7",
  copy: "M9 9h10v11H9zM5 15V4h10",
  again: "M19 12a7 7 0 1 1-2.2-5.100M19 4v4h-4",
  lock: "M6 11h12v9H6zM8.5 11V8a3.5 3.5 0 0 1 7 0v3",
  key: "M8 10.5a4.5 4.5 0 1 1 0 9 4.5 4.5 0 0 1 0-9M11.2 11.8L19.5 3.5M16 7l3 3",
  file: "M12 4v11M7.5 11l4.5 4.5 4.5-4.5M5 20h14",
  check: "M5 12.5l4.5 4.5L19 7.5",
};

const TICKS = {
  waiting: "M8 2.5a5.5 5.5 0 1 1 0 11 5.5 5.5 0 0 1 0-11M8 5v3.3l2.2 1.3",
  one: "M4.5 8.5l3 3L13.5 5",
  two: "M1.5 8.5l3 3L10.5 5M8 11l.7.6L15 5",
};

function draw(box, path, name) {
  const svg = document.createElementNS(SPACE, "svg");
  const line = document.createElementNS(SPACE, "path");
  svg.setAttribute("viewBox", `0 0 ${box} ${box}`);
  svg.setAttribute("class", name);
  svg.setAttribute("aria-hidden", "true");
  line.setAttribute("d", path);
  svg.append(line);
  return svg;
}

/** An icon of LINES; it says nothing to a screen reader, the text beside it does. */
export function icon(name) {
  return draw(24, LINES[name], "icon");
}

/** The drawing of a tick: "waiting", "one" or "two". */
export function tickDrawing(name) {
  return draw(16, TICKS[name], "tick-drawing");
}
