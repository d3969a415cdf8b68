// Small charts. Their numbers are shown next to them.

import { h } from "./dom.js";

const WIDTH = 120;
const HEIGHT = 28;

/** A line of the last values, scaled to the largest. */
export function sparkline(values, label) {
  const largest = Math.max(...values, 0.001);
  const step = WIDTH / Math.max(values.length - 1, 1);
  const at = (value, index) =>
    `${(index * step).toFixed(1)},${(HEIGHT - 1 - (value / largest) * (HEIGHT - 2)).toFixed(1)}`;
  return h(
    "svg",
    {
      class: "sparkline",
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      preserveAspectRatio: "none",
      role: "img",
      "aria-label": label,
    },
    values.length > 1 ? h("polyline", { points: values.map(at).join(" ") }) : null,
  );
}

const BAR_WIDTH = 1_000;
/** The least width of a part that is not zero. */
const SLIVER = 6;

/** A bar of the parts of a whole; `parts` are `{ tone, value, name }`. */
export function bar(parts, label) {
  const there = parts.filter((part) => part.value > 0);
  const whole = there.reduce((sum, part) => sum + part.value, 0);
  const room = BAR_WIDTH - SLIVER * there.length;
  let x = 0;
  const rectangles = there.map(({ tone, value, name }) => {
    const width = SLIVER + (room * value) / whole;
    const rectangle = h("rect", {
      x: x.toFixed(1),
      y: 0,
      width: Math.max(width - 2, 1).toFixed(1),
      height: 8,
      class: `fill-${tone}`,
      "data-key": name,
    });
    x += width;
    return rectangle;
  });
  return h(
    "svg",
    { class: "bar", viewBox: `0 0 ${BAR_WIDTH} 8`, preserveAspectRatio: "none", role: "img", "aria-label": label },
    rectangles,
  );
}
