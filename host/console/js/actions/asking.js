// What every action has in common: a button that says exactly what it will do before it does it, and what the host
// answered after that.

import { confirm } from "../dialog.js";
import { h } from "../dom.js";
import { badge, button } from "../parts.js";

/** A button that asks first. */
export function asking(text, kind, question) {
  return button(text, kind === "danger" ? "danger-quiet" : "plain", () =>
    confirm({ label: text.replace("…", ""), kind, ...question }),
  );
}

/** Says where a thing stands now. */
export const isAt = (thing, state) => h("p", null, thing, " is ", badge(state), ".");
