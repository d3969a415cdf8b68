// Common parts of actions: a button that explains the action before it runs, and the result of the host.

import { confirm } from "../dialog.js";
import { h } from "../dom.js";
import { badge, button } from "../parts.js";

/** A button that asks first. */
export function asking(text, kind, question) {
  return button(text, kind === "danger" ? "danger-quiet" : "plain", () =>
    confirm({ label: text.replace("…", ""), kind, ...question }),
  );
}

/** A sentence with the state of a thing. */
export const isAt = (thing, state) => h("p", null, thing, " is ", badge(state), ".");
